// Enflame: EFML's index interface through the helper, efsmi's text, and sysfs. Unverified on hardware.
#include "base/text.h"
#include "device/merge.h"
#include "device/text/efsmi_text.h"
#include "device/vendor.h"

namespace fulldeck::device {
namespace {

constexpr std::uint16_t kS60 = 0xc035;
constexpr std::uint16_t kS60G = 0xc033;

// The training stacks of the T generation name the device xla:N, later ones gcu:N.
std::optional<std::string> TorchType(const std::optional<std::string>& model) {
  if (!model || model->empty()) return std::nullopt;
  const bool t_generation = model->starts_with("T1") || model->starts_with("T2");
  return t_generation ? "xla" : "gcu";
}

// The number that the driver assigned to the card: the folder gcuN below its PCI function.
std::optional<int> DriverNumber(const base::SystemRoot& root, const std::string& address) {
  for (const std::string& name : root.List("/sys/bus/pci/devices/" + address + "/enflame")) {
    if (!name.starts_with("gcu")) continue;
    if (const auto number = base::ParseInteger<int>(std::string_view(name).substr(3))) return number;
  }
  return std::nullopt;
}

SourceReading ReadSysfs(const VendorTraits& traits, const Survey& survey) {
  SourceReading reading;
  reading.source = "sysfs";
  for (const PciFunction& function : survey.Of(traits)) {
    CardReading card;
    card.pci_address = function.address;
    card.index = DriverNumber(survey.root, function.address);
    if (function.device == kS60) card.model = "S60";
    if (function.device == kS60G) card.model = "S60G";
    if (card.index || card.model) reading.cards.push_back(std::move(card));
  }
  return reading;
}

class Enflame final : public Vendor {
 public:
  const VendorTraits& traits() const override { return *FindVendorTraits("enflame"); }

  std::vector<Source> Sources(const Survey& survey, const base::Environment& environment) const override {
    if (survey.Of(traits()).empty() && survey.Nodes(traits()).empty()) return {};
    std::vector<Source> sources;
    Source efml;
    efml.title = "EFML";
    efml.library = LibraryKind::kEfml;
    efml.candidates = LibraryCandidates(survey.root, {"libefml.so", "libefml.so.1", "libefml.so.2"},
                                        {"/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"});
    if (!efml.candidates.empty()) sources.push_back(std::move(efml));
    if (const auto program = survey.root.FindProgram("efsmi", environment)) {
      Source table;
      table.title = "efsmi";
      table.command = {*program};
      table.parser = ParseEfsmi;
      Source monitor;
      monitor.title = "efsmi --dmon";
      monitor.command = {*program, "--dmon", "-c", "1"};
      monitor.parser = ParseEfsmiDmon;
      sources.push_back(std::move(table));
      sources.push_back(std::move(monitor));
    }
    return sources;
  }

  VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const override {
    VendorReport report = MergeAll(traits(), survey, survey.Of(traits()), answers);
    report.cards = Merge(traits(), std::move(report.cards), ReadSysfs(traits(), survey));
    AssignNodes(traits(), survey, report.cards);
    for (Card& card : report.cards) {
      if (card.nodes.empty()) {
        card.notes.push_back("There is no /dev/gcu" + std::to_string(card.index) +
                             ": a container needs this node to use the card.");
      }
      card.torch_type = TorchType(card.model);
      if (!card.torch_type) {
        card.notes.push_back(
            "Neither EFML nor efsmi told the model, so torch's name of the card (xla:N on T20 and T21, gcu:N on S60) "
            "is "
            "not known.");
      }
    }
    return report;
  }
};

}  // namespace

std::unique_ptr<Vendor> MakeEnflame() {
  return std::make_unique<Enflame>();
}

}  // namespace fulldeck::device
