// A card as the rest of fulldeck knows it: identity, torch name, visibility and telemetry. A value that is unknown is
// absent, never zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fulldeck::device {

// A process that uses a card.
struct Holder {
  int pid = 0;
  std::optional<std::string> user;
  std::optional<std::string> command;  // command line, made printable
  std::optional<std::uint64_t> memory_bytes;
};

// How long a process has kept a card busy since it opened the card. Monotonic; outlives the process.
struct ProcessWork {
  int slot = 0;                   // with start_ticks: identifies the process even after it closed the card
  int pid = 0;                    // 0: it has closed the card
  std::uint64_t start_ticks = 0;  // of the process
  std::uint64_t busy_ns = 0;
};

struct Telemetry {
  std::optional<double> utilization_percent;
  std::optional<std::uint64_t> memory_used_bytes;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<double> temperature_celsius;
  std::optional<std::string> state;              // as the vendor spells it: Sleep, Active, OK, P0 …
  std::optional<std::vector<Holder>> holders;    // absent: unknown; empty: no process
  std::optional<std::vector<ProcessWork>> work;  // absent: the vendor has no such counter
};

struct Card {
  std::string vendor;  // VendorTraits::name
  std::string kind;    // gcu, npu, cuda …: as in --devices
  int index = 0;       // the vendor's number of the card on this machine
  bool simulated = false;
  bool present = true;  // false: the machine once had it, but it no longer responds (dropped off the bus)

  std::optional<std::string> model;
  std::optional<std::string> serial;
  std::optional<std::string> uuid;
  std::optional<std::string> pci_address;
  std::optional<int> numa_node;
  std::optional<std::string> local_cpus;  // in the kernel's list format: 0-15,32-47
  std::optional<std::string> link;        // PCIe speed and width: "16.0 GT/s x16"
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::string> driver;
  std::optional<std::string> firmware;

  // Whether the visibility variable lets torch use the card, and under which name. A hidden card has no torch name.
  bool visible = true;
  std::optional<std::string> torch_type;    // cuda, gcu, xla …; absent if the model does not determine it
  std::optional<std::string> torch_device;  // cuda:0, xla:3
  std::string torch_module;                 // the Python module to import; empty if built into torch
  std::string collective_backend;           // nccl, eccl, hccl …

  std::vector<std::string> nodes;    // device nodes: /dev/gcu0
  std::vector<std::string> sources;  // the sources of these values
  std::vector<std::string> notes;    // whole sentences for the user
  Telemetry telemetry;
};

// The name in messages: "gcu 3".
inline std::string NameOf(const Card& card) {
  return card.kind + " " + std::to_string(card.index);
}

}  // namespace fulldeck::device
