// What one source (a vendor's library, a tool's text, the kernel's files) reports about cards. Vendor-neutral, so
// that the same code merges every source of every vendor. A value that a source does not report is absent, never
// zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fulldeck::device {

struct ProcessOnCard {
  int pid = 0;
  std::optional<std::uint64_t> memory_bytes;
};

struct CardReading {
  std::optional<int> index;  // the vendor's number of the card on this machine
  std::optional<std::string> model;
  std::optional<std::string> serial;
  std::optional<std::string> uuid;
  std::optional<std::string> pci_address;  // as returned by NormalPciAddress(): 0000:3d:00.0
  std::optional<std::string> firmware;
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;
  // for a source that reports only this; percent of the total from any source
  std::optional<double> memory_used_percent;
  std::optional<double> utilization_percent;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<double> temperature_celsius;
  std::optional<std::string> state;  // as the vendor spells it: Sleep, Active, OK, P0 …
  // Absent: the source cannot report them. Empty: it checked, and no process uses the card.
  std::optional<std::vector<ProcessOnCard>> processes;
  std::vector<std::string> notes;  // whole sentences for the reader of the table
};

struct SourceReading {
  std::string source;  // the source with its version: "efsmi 1.20.0", "NVML 13.580.159"
  std::optional<std::string> driver_version;
  std::vector<CardReading> cards;
  std::vector<std::string> notes;  // about the whole source, e.g. lines that could not be read
};

}  // namespace fulldeck::device
