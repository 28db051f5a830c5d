// Ascend: npu-smi's text, and DCMI through the helper. Unverified on hardware.
#include "device/merge.h"
#include "device/text/npu_smi_text.h"
#include "device/vendor.h"

namespace fulldeck::device {
namespace {

// The same PCI vendor makes the management chip with the VGA function that most of its servers have.
std::vector<PciFunction> AcceleratorsOnly(std::vector<PciFunction> functions) {
  std::erase_if(functions, [](const PciFunction& function) { return function.class_code >> 16 != 0x12; });
  return functions;
}

class Ascend final : public Vendor {
 public:
  const VendorTraits& traits() const override { return *FindVendorTraits("ascend"); }

  std::vector<Source> Sources(const Survey& survey, const base::Environment& environment) const override {
    if (AcceleratorsOnly(survey.Of(traits())).empty() && survey.Nodes(traits()).empty()) return {};
    std::vector<Source> sources;
    if (const auto program = survey.root.FindProgram("npu-smi", environment)) {
      Source table;
      table.title = "npu-smi";
      table.command = {*program, "info"};
      table.parser = ParseNpuSmi;
      sources.push_back(std::move(table));
    }
    Source dcmi;
    dcmi.title = "DCMI";
    dcmi.library = LibraryKind::kDcmi;
    dcmi.candidates = LibraryCandidates(survey.root, {"libdcmi.so"},
                                        {"/usr/local/Ascend/driver/lib64/driver", "/usr/local/dcmi", "/usr/lib64"});
    if (!dcmi.candidates.empty()) sources.push_back(std::move(dcmi));
    return sources;
  }

  VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const override {
    VendorReport report = MergeAll(traits(), survey, AcceleratorsOnly(survey.Of(traits())), answers);
    AssignNodes(traits(), survey, report.cards);
    return report;
  }
};

}  // namespace

std::unique_ptr<Vendor> MakeAscend() {
  return std::make_unique<Ascend>();
}

}  // namespace fulldeck::device
