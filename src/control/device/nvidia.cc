// NVIDIA: NVML through the helper; without it, what the kernel module provides in /proc.
#include "device/merge.h"
#include "device/pci_address.h"
#include "device/text/nvidia_proc_text.h"
#include "device/vendor.h"

namespace fulldeck::device {
namespace {

constexpr char kProcFolder[] = "/proc/driver/nvidia";

SourceReading ReadProc(const base::SystemRoot& root) {
  SourceReading reading;
  reading.source = "kernel module";
  if (const auto version = root.ReadFile(std::string(kProcFolder) + "/version")) {
    reading.driver_version = ParseNvidiaVersion(*version);
  }
  const std::string gpus = std::string(kProcFolder) + "/gpus";
  for (const std::string& address : root.List(gpus)) {
    const auto text = root.ReadFile(gpus + "/" + address + "/information");
    if (!text) continue;
    CardReading card = ParseNvidiaInformation(*text);
    if (!card.pci_address) card.pci_address = NormalPciAddress(address);
    reading.cards.push_back(std::move(card));
  }
  return reading;
}

class Nvidia final : public Vendor {
 public:
  const VendorTraits& traits() const override { return *FindVendorTraits("nvidia"); }

  std::vector<Source> Sources(const Survey& survey, const base::Environment&) const override {
    if (survey.Of(traits()).empty() && survey.Nodes(traits()).empty() && !survey.root.Exists(kProcFolder)) return {};
    Source nvml;
    nvml.title = "NVML";
    nvml.library = LibraryKind::kNvml;
    nvml.candidates = LibraryCandidates(survey.root, {"libnvidia-ml.so.1"},
                                        {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                         "/usr/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"});
    if (nvml.candidates.empty()) return {};
    return {nvml};
  }

  VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const override {
    VendorReport report = MergeAll(traits(), survey, survey.Of(traits()), answers);
    const SourceReading proc = ReadProc(survey.root);
    if (!proc.cards.empty()) {
      report.cards = Merge(traits(), std::move(report.cards), proc);
      report.absence.reset();
    }
    for (Card& card : report.cards) {
      if (!card.driver) card.driver = proc.driver_version;
      if (card.sources == std::vector<std::string>{"PCI"}) {
        card.notes.push_back("No NVIDIA driver is loaded: this card cannot be used yet.");
      }
    }
    return report;
  }
};

}  // namespace

std::unique_ptr<Vendor> MakeNvidia() {
  return std::make_unique<Nvidia>();
}

}  // namespace fulldeck::device
