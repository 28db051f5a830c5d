// Visible-device lists (CUDA_VISIBLE_DEVICES and its counterparts): which cards a process may use, and in which order
// torch numbers them. Read and shown, never changed. A list that the vendor's runtime would silently truncate is an
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
  std::vector<std::size_t> cards;  // positions in the vector that was passed in, in torch's order
};

// How the variable in force applies to `cards` (all of this vendor, by index). nullopt if none is set. The error
// names the invalid entry and lists the valid forms.
base::Result<std::optional<VisibilityList>> ReadVisibility(const VendorTraits& traits, const std::vector<Card>& cards,
                                                           const base::Environment& environment);

// The same for one value; pure.
base::Result<VisibilityList> ParseVisibility(const VendorTraits& traits, const std::string& variable,
                                             const std::string& value, const std::vector<Card>& cards);

}  // namespace fulldeck::device
