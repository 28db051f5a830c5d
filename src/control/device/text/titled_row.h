// One line of a tool's card table, read by the title line above it: "Temp" in the title gives the first word of a row
// its meaning, wherever the column is. Not for lines without titles. Does not know which rows belong to one card
// (card_table.h does).
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/card_reading.h"
#include "device/text/text_scan.h"

namespace fulldeck::device {

// What a value is about.
enum class Field {
  kIgnored,     // known, but not used
  kNumber,      // of the card
  kChip,        // of the chip on its card
  kPhysicalId,  // of the chip on this machine
  kModel,
  kFirmware,
  kPciAddress,
  kState,
  kSerial,
  kUuid,
  kTemperature,
  kPower,
  kPowerAndLimit,
  kUtilization,
  kMemoryTotal,
  kMemoryUse,  // used and total, MiB
  kHbmUse,     // used and total, MiB; preferred if the card has HBM
  kProcessId,
  kProcessMemory,
  kContainerProcessId,
};

// How much of a cell belongs to one title.
enum class Extent {
  kWord,
  kQuantity,  // a number with its unit, with or without a space: "30C", "39 C"
  kPair,      // "68W / 300W", "48.0W  300W", "29096/ 32768", or one "N/A" for both
  kRest,      // the rest of the cell
};

struct Title {
  std::string_view words;  // as the tool spells it, ignoring case: "Pwr(Usage/Cap)", "Boot FW VER"
  Field field;
  Extent extent;
};

// Per cell, the titles in the order printed. A word that is not a known title counts as one ignored word.
using TitleLine = std::vector<std::vector<Title>>;

// nullopt if the row is not a title line: fewer than two of its titles are among `known`.
std::optional<TitleLine> ReadTitleLine(const BoxedRow& row, std::span<const Title> known);
bool HasTitle(const TitleLine& titles, Field field);
// The titles whose values are used, for messages: "TEMP, Dpm, Mem".
std::string WantedTitles(const TitleLine& titles);

// The values of a row under the titles of one line.
struct RowReading {
  CardReading card;  // without index: the vendor decides which number it is
  std::optional<int> number;
  std::optional<int> chip;
  std::optional<int> physical_id;
  std::optional<std::uint64_t> other_memory_used_bytes;  // under kMemoryUse
  std::optional<std::uint64_t> other_memory_total_bytes;
  std::optional<int> process_id;
  std::optional<int> container_process_id;
  std::optional<std::uint64_t> process_memory_bytes;
  std::vector<std::string_view> unreadable;  // titles whose value is present but invalid
  int understood = 0;                        // titles whose value was read or is marked as unknown ("N/A")
  int missing = 0;                           // titles without a value in a cell that exists
  bool cut = false;                          // the line stops before its last cell

  // 0: the row has everything that the titles require.
  int misfits() const { return static_cast<int>(unreadable.size()) + missing; }
};

RowReading ReadRow(const TitleLine& titles, const BoxedRow& row);

// Copies from `from` the values that `into` lacks.
void FillAbsent(const CardReading& from, CardReading& into);

}  // namespace fulldeck::device
