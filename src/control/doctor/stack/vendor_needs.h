// What a vendor's runtime requires on a machine, especially inside a container. Facts only, as documented by vendors
// and their container runtimes; device/vendor_traits.h has the rest.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace fulldeck::doctor {

struct VendorNeeds {
  std::string_view vendor;                      // VendorTraits::name
  std::vector<std::string_view> control_nodes;  // in addition to one device node per card
  std::vector<std::string_view> libraries;      // all of them are required
  std::vector<std::string_view> folders;        // searched in addition to the usual ones
  std::string_view tool;                        // that lists the cards
  std::string_view container_flags;             // options that provide all that to a container
};

std::span<const VendorNeeds> AllVendorNeeds();
// nullptr if unknown.
const VendorNeeds* FindVendorNeeds(std::string_view vendor);

}  // namespace fulldeck::doctor
