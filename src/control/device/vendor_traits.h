// The table of accelerator vendors: how their cards are found and what they are called. Facts only; the README lists
// what was verified on real hardware.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fulldeck::device {

struct VendorTraits {
  const char* name;              // enflame
  const char* title;             // Enflame
  const char* kind;              // gcu
  std::uint16_t pci_vendors[2];  // 0: no second one; both 0: real cards are not searched for
  const char* kernel_module;     // /sys/module/NAME/version; "": unknown
  const char* node_prefix;       // device nodes are prefix + number: /dev/gcu
  const char* visibility_variable;
  const char* second_visibility_variable;  // read after the first; "": none
  const char* container_variable;          // read by the vendor's container runtime; shown, not applied again
  bool visibility_takes_uuids;
  const char* torch_module;
  const char* collective_backend;
};

std::span<const VendorTraits> AllVendorTraits();

// nullptr if there is no such vendor.
const VendorTraits* FindVendorTraits(std::string_view name);

}  // namespace fulldeck::device
