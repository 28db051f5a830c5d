#include "device/text/efsmi_text.h"

#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "base/text.h"
#include "device/text/card_table.h"
#include "device/text/text_scan.h"
#include "device/text/titled_row.h"

namespace fulldeck::device {
namespace {

constexpr std::array<Title, 17> kTitles = {{
    {"DEV", Field::kNumber, Extent::kWord},
    {"NAME", Field::kModel, Extent::kRest},
    {"FW VER", Field::kFirmware, Extent::kRest},
    {"Boot FW VER", Field::kFirmware, Extent::kRest},
    {"BUS-ID", Field::kPciAddress, Extent::kWord},
    {"ECC", Field::kIgnored, Extent::kRest},
    {"TEMP", Field::kTemperature, Extent::kQuantity},
    {"DPM", Field::kState, Extent::kWord},
    {"LPM", Field::kState, Extent::kWord},
    {"Pwr(Usage/Cap)", Field::kPowerAndLimit, Extent::kPair},
    {"Mem", Field::kMemoryTotal, Extent::kQuantity},
    {"vGCU", Field::kIgnored, Extent::kRest},
    {"GCU Virt", Field::kIgnored, Extent::kRest},
    {"DEV-Util", Field::kUtilization, Extent::kQuantity},
    {"DUsed", Field::kUtilization, Extent::kQuantity},
    {"UUID", Field::kUuid, Extent::kWord},
    {"SN", Field::kSerial, Extent::kWord},
}};

constexpr std::string_view kNoDevices =
    "efsmi could not initialise: this container probably has no device nodes, or the driver is not loaded. "
    "See: ls -l /dev/gcu* and start the container with those devices.";

bool ReportsNoDevices(const TextLines& text) {
  for (const std::string_view line : text.lines) {
    if (ContainsIgnoringCase(line, "HAL initialization failed") ||
        ContainsIgnoringCase(line, "Failed to initialize efml")) {
      return true;
    }
  }
  return false;
}

// "EFSMI    V1.20.0   Driver Ver: 2.4.20230829", "EFSMI: 1.6.3.12   Driver Ver: 1.6.3.12".
void ReadVersions(const TextLines& text, SourceReading& reading) {
  for (const std::string_view line : text.lines) {
    const std::optional<BoxedRow> row = ReadBoxedRow(line);
    if (!row || row->cells.size() != 1) continue;
    const std::vector<std::string_view> words = Words(row->cells[0]);
    if (words.size() < 2 || !(EqualIgnoringCase(words[0], "EFSMI") || EqualIgnoringCase(words[0], "EFSMI:"))) continue;
    if (const std::optional<std::string> version = Version(words[1])) reading.source = "efsmi " + *version;
    for (std::size_t i = 2; i + 1 < words.size(); ++i) {
      if (EqualIgnoringCase(words[i], "Ver:")) reading.driver_version = Version(words[i + 1]);
    }
    return;
  }
}

// "Enflame S60G" and "S60G" are the same model.
std::string NormalModel(std::string_view model) {
  constexpr std::string_view kVendor = "Enflame ";
  if (model.size() > kVendor.size() && EqualIgnoringCase(model.substr(0, kVendor.size()), kVendor)) {
    model.remove_prefix(kVendor.size());
  }
  return std::string(base::Trim(model));
}

enum class DmonColumn { kOther, kIndex, kPower, kTemperature, kUtilization, kState, kMemoryUsed, kMemoryTotal };

DmonColumn ColumnTitled(std::string_view title) {
  struct Row {
    std::string_view title;
    DmonColumn column;
  };
  static constexpr std::array<Row, 9> kRows = {{{"Dev", DmonColumn::kIndex},
                                                {"GCU", DmonColumn::kIndex},
                                                {"Pwr", DmonColumn::kPower},
                                                {"DTemp", DmonColumn::kTemperature},
                                                {"DUsed", DmonColumn::kUtilization},
                                                {"Dpm", DmonColumn::kState},
                                                {"Lpm", DmonColumn::kState},
                                                {"MUsed", DmonColumn::kMemoryUsed},
                                                {"Mem", DmonColumn::kMemoryTotal}}};
  for (const Row& row : kRows) {
    if (EqualIgnoringCase(row.title, title)) return row.column;
  }
  return DmonColumn::kOther;
}

struct DmonTitles {
  std::vector<DmonColumn> columns;
  std::string_view memory_unit = "MiB";
};

// The words of a line, without the star or bar with which some lines begin and end.
std::vector<std::string_view> DmonWords(std::string_view line) {
  line = base::Trim(line);
  const auto is_border = [](char c) { return c == '*' || c == '|' || c == '#'; };
  while (!line.empty() && is_border(line.front())) line.remove_prefix(1);
  while (!line.empty() && is_border(line.back())) line.remove_suffix(1);
  return Words(line);
}

std::optional<DmonTitles> ReadDmonTitles(const std::vector<std::string_view>& words) {
  DmonTitles titles;
  int known = 0;
  for (const std::string_view word : words) {
    titles.columns.push_back(ColumnTitled(word));
    if (titles.columns.back() != DmonColumn::kOther) ++known;
  }
  if (known < 3 || titles.columns[0] != DmonColumn::kIndex) return std::nullopt;
  return titles;
}

// The line of units under the titles. As far as is known, only Mem's unit varies.
void ReadDmonUnits(const std::vector<std::string_view>& words, DmonTitles& titles) {
  if (words.size() != titles.columns.size()) return;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (titles.columns[i] == DmonColumn::kMemoryTotal && Bytes("1", words[i])) titles.memory_unit = words[i];
  }
}

// Returns false if the word is present but invalid.
bool StoreDmon(DmonColumn column, std::string_view word, std::string_view memory_unit, CardReading& card) {
  if (column == DmonColumn::kOther || column == DmonColumn::kIndex || IsAbsentMark(word)) return true;
  switch (column) {
    case DmonColumn::kPower:
      return (card.power_watts = Watts(word)).has_value();
    case DmonColumn::kTemperature:
      return (card.temperature_celsius = Celsius(word)).has_value();
    case DmonColumn::kUtilization:
      return (card.utilization_percent = Percent(word)).has_value();
    case DmonColumn::kState:
      return (card.state = PlainText(word)).has_value();
    case DmonColumn::kMemoryUsed:
      return (card.memory_used_percent = Percent(word)).has_value();
    case DmonColumn::kMemoryTotal:
      return (card.memory_total_bytes = Bytes(word, memory_unit)).has_value();
    case DmonColumn::kOther:
    case DmonColumn::kIndex:
      break;
  }
  return true;
}

CardReading ReadDmonRow(const DmonTitles& titles, const std::vector<std::string_view>& words, int index) {
  CardReading card;
  card.index = index;
  if (words.size() != titles.columns.size()) {
    card.notes.push_back("efsmi --dmon: the line of this card has " + std::to_string(words.size()) + " values under " +
                         std::to_string(titles.columns.size()) + " titles; it was not read.");
    return card;
  }
  bool sensible = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    sensible &= StoreDmon(titles.columns[i], words[i], titles.memory_unit, card);
  }
  if (!sensible) card.notes.push_back("efsmi --dmon: a value of this card could not be read.");
  return card;
}

}  // namespace

SourceReading ParseEfsmi(std::string_view text) {
  SourceReading reading;
  reading.source = "efsmi";
  TextLines lines = SplitLines(text, "efsmi");
  reading.notes = lines.notes;
  ReadVersions(lines, reading);
  if (ReportsNoDevices(lines)) {
    reading.notes.emplace_back(kNoDevices);
    return reading;
  }

  CardTable table = ReadCardTable(lines, kTitles, "efsmi");
  for (RowReading& row : table.cards) {
    CardReading card = std::move(row.card);
    card.index = row.number;
    if (card.model) card.model = NormalModel(*card.model);
    if (!card.serial) card.serial = card.uuid;
    reading.cards.push_back(std::move(card));
  }
  KeepIdentifiedCards(reading, "efsmi");
  reading.notes.insert(reading.notes.end(), table.notes.begin(), table.notes.end());
  if (reading.cards.empty() && !table.has_titles) {
    reading.notes.push_back(NoTableNote(lines, "efsmi"));
  } else if (reading.cards.empty() && table.notes.empty()) {
    reading.notes.emplace_back("efsmi printed a table without cards.");
  }
  return reading;
}

SourceReading ParseEfsmiDmon(std::string_view text) {
  SourceReading dmon;
  dmon.source = "efsmi --dmon";
  const TextLines lines = SplitLines(text, "efsmi --dmon");
  dmon.notes = lines.notes;
  if (ReportsNoDevices(lines)) {
    dmon.notes.emplace_back(kNoDevices);
    return dmon;
  }
  std::optional<DmonTitles> titles;
  std::set<int> seen;
  for (const std::string_view line : lines.lines) {
    const std::vector<std::string_view> words = DmonWords(line);
    if (words.empty()) continue;
    if (std::optional<DmonTitles> found = ReadDmonTitles(words)) {
      titles = std::move(found);
      continue;
    }
    if (!titles) continue;
    const std::optional<std::int64_t> index = Whole(words[0], 65535);
    if (!index) {
      if (dmon.cards.empty()) ReadDmonUnits(words, *titles);
      continue;
    }
    if (dmon.cards.size() == kMaxCards) {
      dmon.notes.emplace_back("efsmi --dmon lists more than 256 cards; the rest was left out.");
      break;
    }
    if (!seen.insert(static_cast<int>(*index)).second) continue;  // a second sample of the same card
    dmon.cards.push_back(ReadDmonRow(*titles, words, static_cast<int>(*index)));
  }
  if (dmon.cards.empty()) {
    dmon.notes.push_back(titles ? "efsmi --dmon printed titles and no card." : NoTableNote(lines, "efsmi --dmon"));
  }
  return dmon;
}

}  // namespace fulldeck::device
