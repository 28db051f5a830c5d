#include "device/survey.h"

#include <algorithm>

#include "base/text.h"
#include "device/pci_address.h"

namespace fulldeck::device {
namespace {

constexpr char kPciFolder[] = "/sys/bus/pci/devices/";

std::optional<std::uint32_t> ReadHex(const base::SystemRoot& root, const std::string& path) {
  const auto line = root.ReadLine(path);
  if (!line || !line->starts_with("0x")) return std::nullopt;
  return base::ParseInteger<std::uint32_t>(std::string_view(*line).substr(2), 16);
}

// "16.0 GT/s PCIe" and "16" give "16.0 GT/s x16".
std::optional<std::string> ReadLink(const base::SystemRoot& root, const std::string& folder) {
  const auto speed = root.ReadLine(folder + "/current_link_speed");
  const auto width = root.ReadLine(folder + "/current_link_width");
  if (!speed || !width || *width == "0" || speed->starts_with("Unknown")) return std::nullopt;
  return base::Printable(speed->substr(0, speed->find(" PCIe"))) + " x" + base::Printable(*width);
}

}  // namespace

Survey TakeSurvey(const base::SystemRoot& root) {
  Survey survey{root, {}};
  for (const std::string& name : root.List(kPciFolder)) {
    const auto address = NormalPciAddress(name);
    if (!address) continue;
    const std::string folder = kPciFolder + name;
    const auto class_code = ReadHex(root, folder + "/class");
    const auto vendor = ReadHex(root, folder + "/vendor");
    const auto device = ReadHex(root, folder + "/device");
    if (!class_code || !vendor) continue;
    const std::uint32_t base_class = *class_code >> 16;
    if (base_class != 0x03 && base_class != 0x12) continue;
    PciFunction function;
    function.address = *address;
    function.class_code = *class_code;
    function.vendor = static_cast<std::uint16_t>(*vendor);
    function.device = static_cast<std::uint16_t>(device.value_or(0));
    if (const auto line = root.ReadLine(folder + "/numa_node")) {
      // The kernel prints -1 if the node is unknown.
      const auto node = base::ParseInteger<int>(*line);
      if (node && *node >= 0) function.numa_node = node;
    }
    if (auto cpus = root.ReadLine(folder + "/local_cpulist")) function.local_cpus = base::Printable(*cpus);
    function.link = ReadLink(root, folder);
    survey.accelerators.push_back(std::move(function));
  }
  std::sort(survey.accelerators.begin(), survey.accelerators.end(),
            [](const PciFunction& a, const PciFunction& b) { return a.address < b.address; });
  return survey;
}

std::vector<PciFunction> Survey::Of(const VendorTraits& traits) const {
  std::vector<PciFunction> own;
  for (const PciFunction& function : accelerators) {
    if (std::find(std::begin(traits.pci_vendors), std::end(traits.pci_vendors), function.vendor) !=
        std::end(traits.pci_vendors)) {
      own.push_back(function);
    }
  }
  return own;
}

std::vector<std::pair<int, std::string>> Survey::Nodes(const VendorTraits& traits) const {
  std::vector<std::pair<int, std::string>> nodes;
  const std::string prefix = traits.node_prefix;
  if (prefix.empty()) return nodes;
  const auto slash = prefix.rfind('/');
  for (const std::string& name : root.List(prefix.substr(0, slash))) {
    if (!name.starts_with(prefix.substr(slash + 1))) continue;
    const auto number = base::ParseInteger<int>(std::string_view(name).substr(prefix.size() - slash - 1));
    if (number && *number >= 0) nodes.emplace_back(*number, prefix.substr(0, slash + 1) + name);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace fulldeck::device
