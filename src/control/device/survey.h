// What the kernel reports about cards without any vendor library: PCI functions and device nodes. Runs no vendor code
// and writes nothing, because some vendors reset a card when the wrong file is touched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/system_root.h"
#include "device/vendor_traits.h"

namespace fulldeck::device {

struct PciFunction {
  std::string address;  // 0000:3d:00.0
  std::uint32_t class_code = 0;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::optional<int> numa_node;
  std::optional<std::string> local_cpus;
  std::optional<std::string> link;
};

struct Survey {
  base::SystemRoot root;
  std::vector<PciFunction> accelerators;  // display (0x03) and accelerator (0x12) classes, by address

  // Those of one vendor.
  std::vector<PciFunction> Of(const VendorTraits& traits) const;
  // Paths such as /dev/gcu0 with their numbers, by number. A name with anything but a number after the prefix is not
  // a card.
  std::vector<std::pair<int, std::string>> Nodes(const VendorTraits& traits) const;
};

Survey TakeSurvey(const base::SystemRoot& root);

}  // namespace fulldeck::device
