// Iluvatar CoreX: a library with NVML's names and structs, through the helper. Unverified on hardware.
#include "device/merge.h"
#include "device/vendor.h"

namespace fulldeck::device {
namespace {

class Iluvatar final : public Vendor {
 public:
  const VendorTraits& traits() const override { return *FindVendorTraits("iluvatar"); }

  std::vector<Source> Sources(const Survey& survey, const base::Environment&) const override {
    if (survey.Of(traits()).empty() && survey.Nodes(traits()).empty()) return {};
    Source ixml;
    ixml.title = "IXML";
    ixml.library = LibraryKind::kIxml;
    // The vendor's folders come before the loader's path, which may have an XML parser of the same name.
    for (const char* path : {"/usr/local/corex/lib64/libixml.so", "/usr/local/corex/lib/libixml.so"}) {
      if (survey.root.Exists(path)) ixml.candidates.push_back(survey.root.Path(path));
    }
    if (ixml.candidates.empty()) return {};
    return {ixml};
  }

  VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const override {
    return MergeAll(traits(), survey, survey.Of(traits()), answers);
  }
};

}  // namespace

std::unique_ptr<Vendor> MakeIluvatar() {
  return std::make_unique<Iluvatar>();
}

}  // namespace fulldeck::device
