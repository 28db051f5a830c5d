// Vendors whose cards are found by PCI scan and device nodes only; AMD's kernel driver adds telemetry in sysfs.
// Unverified on hardware.
#include <algorithm>

#include "base/text.h"
#include "device/merge.h"
#include "device/vendor.h"

namespace fulldeck::device {
namespace {

constexpr std::uint64_t kSmallestTrainingMemory = std::uint64_t{8} << 30;

std::optional<std::uint64_t> ReadNumber(const base::SystemRoot& root, const std::string& path) {
  const auto line = root.ReadLine(path);
  return line ? base::ParseInteger<std::uint64_t>(*line) : std::nullopt;
}

std::optional<double> ReadScaled(const base::SystemRoot& root, const std::string& path, double scale) {
  const auto number = ReadNumber(root, path);
  if (!number) return std::nullopt;
  return static_cast<double>(*number) * scale;
}

// What the amdgpu driver writes next to the PCI function.
CardReading ReadAmdgpu(const base::SystemRoot& root, const PciFunction& function) {
  const std::string folder = "/sys/bus/pci/devices/" + function.address;
  CardReading card;
  card.pci_address = function.address;
  if (const auto name = root.ReadLine(folder + "/product_name")) card.model = base::Printable(*name);
  if (const auto serial = root.ReadLine(folder + "/serial_number")) card.serial = base::Printable(*serial);
  if (const auto id = root.ReadLine(folder + "/unique_id")) card.uuid = "GPU-" + base::Printable(*id);
  card.utilization_percent = ReadScaled(root, folder + "/gpu_busy_percent", 1);
  card.memory_total_bytes = ReadNumber(root, folder + "/mem_info_vram_total");
  card.memory_used_bytes = ReadNumber(root, folder + "/mem_info_vram_used");
  for (const std::string& monitor : root.List(folder + "/hwmon")) {
    const std::string sensors = folder + "/hwmon/" + monitor;
    if (!card.power_watts) card.power_watts = ReadScaled(root, sensors + "/power1_average", 1e-6);
    if (!card.power_limit_watts) card.power_limit_watts = ReadScaled(root, sensors + "/power1_cap", 1e-6);
    if (!card.temperature_celsius) card.temperature_celsius = ReadScaled(root, sensors + "/temp1_input", 1e-3);
  }
  return card;
}

class VendorOfPciFunctions final : public Vendor {
 public:
  explicit VendorOfPciFunctions(const VendorTraits& traits) : traits_(traits) {}
  const VendorTraits& traits() const override { return traits_; }

  std::vector<Source> Sources(const Survey&, const base::Environment&) const override { return {}; }

  VendorReport Report(const Survey& survey, const std::vector<Answer>& answers) const override {
    std::vector<PciFunction> functions = survey.Of(traits_);
    std::vector<std::string> displays;
    std::erase_if(functions, [&](const PciFunction& function) {
      const bool only_displays = OnlyDisplays(survey.root, function);
      if (only_displays) displays.push_back(function.address);
      return only_displays;
    });
    VendorReport report = MergeAll(traits_, survey, functions, answers);
    if (report.cards.empty() && !displays.empty()) {
      report.absence =
          "only graphics for a display (" + base::Join(displays, ", ") + "), which is not counted as a card";
    }
    if (IsAmd()) {
      SourceReading amdgpu{"amdgpu", std::nullopt, {}, {}};
      for (const PciFunction& function : functions) amdgpu.cards.push_back(ReadAmdgpu(survey.root, function));
      report.cards = Merge(traits_, std::move(report.cards), amdgpu);
    }
    for (Card& card : report.cards) AddRenderNodes(survey.root, card);
    return report;
  }

 private:
  bool IsAmd() const { return std::string_view(traits_.name) == "amd"; }

  // Integrated or desktop graphics, recognized by how each vendor's devices appear on the bus.
  bool OnlyDisplays(const base::SystemRoot& root, const PciFunction& function) const {
    const std::uint32_t class_and_subclass = function.class_code >> 8;
    if (std::string_view(traits_.name) == "intel") {
      return function.class_code >> 16 != 0x03 || function.address.compare(5, 2, "00") == 0;
    }
    if (IsAmd() && class_and_subclass == 0x0300) {
      const auto memory = ReadNumber(root, "/sys/bus/pci/devices/" + function.address + "/mem_info_vram_total");
      return memory.value_or(0) < kSmallestTrainingMemory;
    }
    return false;
  }

  static void AddRenderNodes(const base::SystemRoot& root, Card& card) {
    if (!card.nodes.empty() || !card.pci_address) return;
    for (const std::string& name : root.List("/sys/bus/pci/devices/" + *card.pci_address + "/drm")) {
      if (name.starts_with("renderD")) card.nodes.push_back("/dev/dri/" + name);
    }
  }

  const VendorTraits& traits_;
};

}  // namespace

std::unique_ptr<Vendor> MakeVendorOfPciFunctions(const VendorTraits& traits) {
  return std::make_unique<VendorOfPciFunctions>(traits);
}

}  // namespace fulldeck::device
