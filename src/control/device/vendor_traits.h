// The table of accelerator vendors: how their cards are found and what they are called. Facts only; what was seen on
// real hardware and what was not stands in the README.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fulldeck::device {

struct VendorTraits {
  const char* name;              // enflame
  const char* title;             // Enflame
  const char* kind;              // gcu
  std::uint16_t pci_vendors[2];  // 0 where there is no second; both 0: real cards are not looked for
  const char* kernel_module;     // /sys/module/NAME/version; "" when unknown
  const char* node_prefix;       // device nodes are prefix + number: /dev/gcu
  const char* visibility_variable;
  const char* second_visibility_variable;  // read after the first; "" when there is none
  const char* container_variable;          // what the vendor's container runtime reads; shown, not applied again
  bool visibility_takes_uuids;
  const char* torch_module;
  const char* collective_backend;
};

std::span<const VendorTraits> AllVendorTraits();

// nullptr when there is no such vendor.
const VendorTraits* FindVendorTraits(std::string_view name);

}  // namespace fulldeck::device
