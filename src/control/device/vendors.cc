#include <algorithm>

#include "device/vendor.h"

namespace fulldeck::device {

std::vector<std::unique_ptr<Vendor>> RealVendors() {
  std::vector<std::unique_ptr<Vendor>> vendors;
  for (const VendorTraits& traits : AllVendorTraits()) {
    const std::string_view name = traits.name;
    if (traits.pci_vendors[0] == 0) continue;
    if (name == "nvidia") {
      vendors.push_back(MakeNvidia());
    } else if (name == "enflame") {
      vendors.push_back(MakeEnflame());
    } else if (name == "ascend") {
      vendors.push_back(MakeAscend());
    } else if (name == "iluvatar") {
      vendors.push_back(MakeIluvatar());
    } else {
      vendors.push_back(MakeVendorOfPciFunctions(traits));
    }
  }
  return vendors;
}

std::vector<std::string> LibraryCandidates(const base::SystemRoot& root, const std::vector<std::string>& names,
                                           const std::vector<std::string>& folders) {
  std::vector<std::string> candidates;
  if (root.is_machine()) candidates = names;
  for (const std::string& folder : folders) {
    for (const std::string& name : names) {
      const std::string path = folder + "/" + name;
      if (root.Exists(path)) candidates.push_back(root.Path(path));
    }
  }
  return candidates;
}

}  // namespace fulldeck::device
