// What a vendor's runtime needs to find on a machine, above all inside a container. Facts only, as vendors and their
// container runtimes document them; device/vendor_traits.h has the rest.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace fulldeck::doctor {

struct VendorNeeds {
  std::string_view vendor;                      // VendorTraits::name
  std::vector<std::string_view> control_nodes;  // besides one node a card
  std::vector<std::string_view> libraries;      // each of them
  std::vector<std::string_view> folders;        // where they may lie besides the usual ones
  std::string_view tool;                        // that shows the cards
  std::string_view container_flags;             // what gives all that to a container
};

std::span<const VendorNeeds> AllVendorNeeds();
// nullptr when nothing is known.
const VendorNeeds* FindVendorNeeds(std::string_view vendor);

}  // namespace fulldeck::doctor
