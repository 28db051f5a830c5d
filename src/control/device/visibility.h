// Visible-device lists (CUDA_VISIBLE_DEVICES and its relatives): which cards a process may use, and in which order
// torch numbers them. Read and shown, never changed. A list that the vendor's runtime would cut short in silence is an
// error here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "device/card.h"
#include "device/vendor_traits.h"

namespace fulldeck::device {

struct VisibilityList {
  std::string variable;
  std::string value;
  std::vector<std::size_t> cards;  // positions in the vector that was given, in torch's order
};

// What the variable in force says about `cards` (all of this vendor, by index). Nothing when none is set. The error
// names the wrong entry and lists the right forms.
base::Result<std::optional<VisibilityList>> ReadVisibility(const VendorTraits& traits, const std::vector<Card>& cards,
                                                           const base::Environment& environment);

// The same for one value; pure.
base::Result<VisibilityList> ParseVisibility(const VendorTraits& traits, const std::string& variable,
                                             const std::string& value, const std::vector<Card>& cards);

}  // namespace fulldeck::device
