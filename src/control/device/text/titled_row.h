// One line of a tool's card table, read by the title line above it: "Temp" in the title says what the first word of a
// row means, wherever the column stands. Not for lines without titles, and it does not know which rows make one card
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
  kIgnored,     // known, not wanted
  kNumber,      // of the card
  kChip,        // of the chip on its card
  kPhysicalId,  // of the chip on this host
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
  kHbmUse,     // used and total, MiB; the memory that counts where there is some
  kProcessId,
  kProcessMemory,
  kContainerProcessId,
};

// How much of a cell belongs to one title.
enum class Extent {
  kWord,
  kQuantity,  // a number with its unit, glued or apart: "30C", "39 C"
  kPair,      // "68W / 300W", "48.0W  300W", "29096/ 32768", or one "N/A" for both
  kRest,      // all that is left of the cell
};

struct Title {
  std::string_view words;  // as the tool spells it, case aside: "Pwr(Usage/Cap)", "Boot FW VER"
  Field field;
  Extent extent;
};

// Cell by cell, the titles in the order in which they stand. A word that is no known title counts as one ignored word.
using TitleLine = std::vector<std::vector<Title>>;

// Nothing when the row is not a title line: fewer than two of its titles are among `known`.
std::optional<TitleLine> ReadTitleLine(const BoxedRow& row, std::span<const Title> known);
bool HasTitle(const TitleLine& titles, Field field);
// "TEMP, Dpm, Mem": the wanted ones, for messages.
std::string WantedTitles(const TitleLine& titles);

// What a row says under the titles of one line.
struct RowReading {
  CardReading card;  // no index: which number is the index is for the vendor to say
  std::optional<int> number;
  std::optional<int> chip;
  std::optional<int> physical_id;
  std::optional<std::uint64_t> other_memory_used_bytes;  // under kMemoryUse
  std::optional<std::uint64_t> other_memory_total_bytes;
  std::optional<int> process_id;
  std::optional<int> container_process_id;
  std::optional<std::uint64_t> process_memory_bytes;
  std::vector<std::string_view> unreadable;  // titles whose value is there and makes no sense
  int understood = 0;                        // titles whose value was read, or said to be unknown ("N/A")
  int missing = 0;                           // titles with no value in a cell that is there
  bool cut = false;                          // the line stops before its last cell

  // 0: the row is all that the titles promise.
  int misfits() const { return static_cast<int>(unreadable.size()) + missing; }
};

RowReading ReadRow(const TitleLine& titles, const BoxedRow& row);

// Copies into `into` what it lacks.
void FillAbsent(const CardReading& from, CardReading& into);

}  // namespace fulldeck::device
