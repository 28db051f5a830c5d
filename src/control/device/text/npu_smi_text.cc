#include "device/text/npu_smi_text.h"

#include <array>
#include <set>
#include <utility>

#include "base/text.h"
#include "device/text/card_table.h"
#include "device/text/text_scan.h"
#include "device/text/titled_row.h"

namespace fulldeck::device {
namespace {

constexpr std::array<Title, 19> kTitles = {{
    {"NPU", Field::kNumber, Extent::kWord},
    {"NPU ID", Field::kNumber, Extent::kWord},
    {"Name", Field::kModel, Extent::kRest},
    {"Health", Field::kState, Extent::kWord},
    {"Power(W)", Field::kPower, Extent::kQuantity},
    {"Temp(C)", Field::kTemperature, Extent::kQuantity},
    {"Hugepages-Usage(page)", Field::kIgnored, Extent::kPair},
    {"Chip", Field::kChip, Extent::kWord},
    {"Phy-ID", Field::kPhysicalId, Extent::kWord},
    {"Device", Field::kPhysicalId, Extent::kWord},
    {"Bus-Id", Field::kPciAddress, Extent::kWord},
    {"AICore(%)", Field::kUtilization, Extent::kQuantity},
    {"NPU Util(%)", Field::kUtilization, Extent::kQuantity},
    {"Memory-Usage(MB)", Field::kMemoryUse, Extent::kPair},
    {"HBM-Usage(MB)", Field::kHbmUse, Extent::kPair},
    {"Process id", Field::kProcessId, Extent::kWord},
    {"Process name", Field::kIgnored, Extent::kRest},
    {"Process memory(MB)", Field::kProcessMemory, Extent::kQuantity},
    {"Process id in container", Field::kContainerProcessId, Extent::kWord},
}};

constexpr std::string_view kNoProcesses = "No running processes found in NPU";

// "| npu-smi 24.1.0   Version: 24.1.0 |": the tool's own version, then the driver's.
void ReadVersions(const TextLines& text, SourceReading& reading) {
  for (const std::string_view line : text.lines) {
    const std::optional<BoxedRow> row = ReadBoxedRow(line);
    if (!row || row->cells.size() != 1) continue;
    const std::vector<std::string_view> words = Words(row->cells[0]);
    if (words.size() < 2 || !EqualIgnoringCase(words[0], "npu-smi")) continue;
    if (const std::optional<std::string> version = Version(words[1])) reading.source = "npu-smi " + *version;
    for (std::size_t i = 2; i < words.size(); ++i) {
      constexpr std::string_view kVersion = "Version:";
      if (!EqualIgnoringCase(words[i].substr(0, kVersion.size()), kVersion)) continue;
      std::string_view value = words[i].substr(kVersion.size());
      if (value.empty() && i + 1 < words.size()) value = words[i + 1];
      reading.driver_version = Version(value);
    }
    return;
  }
}

std::optional<std::string> FailureNote(const TextLines& text) {
  for (const std::string_view line : text.lines) {
    if (!ContainsIgnoringCase(line, "dcmi") || !ContainsIgnoringCase(line, "initialize")) continue;
    return "npu-smi could not initialise (" + Quoted(line) +
           "): the device nodes are missing here, another container holds them, or it needs root. "
           "See: ls -l /dev/davinci* /dev/davinci_manager";
  }
  return std::nullopt;
}

// The NPUs that npu-smi checked and found idle.
std::set<int> IdleNumbers(const TextLines& text) {
  std::set<int> idle;
  for (const std::string_view line : text.lines) {
    const std::optional<BoxedRow> row = ReadBoxedRow(line);
    if (!row || row->cells.size() != 1) continue;  // a truncated line may have lost digits
    const std::string_view cell = row->cells[0];
    if (!EqualIgnoringCase(cell.substr(0, kNoProcesses.size()), kNoProcesses)) continue;
    if (const auto number = Whole(base::Trim(cell.substr(kNoProcesses.size())), 65535))
      idle.insert(static_cast<int>(*number));
  }
  return idle;
}

void ChooseMemory(const RowReading& row, CardReading& card) {
  const bool has_hbm = card.memory_total_bytes && *card.memory_total_bytes > 0;
  if (!has_hbm) {  // "0 / 0" means that there is no memory of this kind
    const bool has_other = row.other_memory_total_bytes && *row.other_memory_total_bytes > 0;
    card.memory_used_bytes = has_other ? row.other_memory_used_bytes : std::nullopt;
    card.memory_total_bytes = has_other ? row.other_memory_total_bytes : std::nullopt;
  }
}

// See the header. If a title line or a card's second line was lost, a number may belong to another chip of the same
// board: assign none.
void NumberCards(const CardTable& table, bool whole, std::vector<CardReading>& cards) {
  bool has_physical_ids = false;
  bool one_chip_each = true;
  std::set<int> numbers;
  for (const RowReading& row : table.cards) {
    has_physical_ids |= row.physical_id.has_value();
    if (row.number) one_chip_each &= numbers.insert(*row.number).second;
  }
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (has_physical_ids) {
      cards[i].index = table.cards[i].physical_id;
    } else if (one_chip_each && table.has_both_titles) {
      cards[i].index = table.cards[i].number;
    } else if (whole) {
      cards[i].index = static_cast<int>(i);
    }
  }
}

// The chip to which a process row belongs. Without a chip number, the NPU's only chip.
CardReading* CardOf(const RowReading& process, const std::vector<RowReading>& rows, std::vector<CardReading>& cards) {
  CardReading* found = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!process.number || rows[i].number != process.number) continue;
    if (process.chip && process.chip != rows[i].chip) continue;
    if (found != nullptr) return nullptr;
    found = &cards[i];
  }
  return found;
}

void AddProcesses(const CardTable& table, const std::set<int>& idle, SourceReading& reading) {
  for (std::size_t i = 0; i < table.cards.size(); ++i) {
    if (table.cards[i].number && idle.contains(*table.cards[i].number)) reading.cards[i].processes.emplace();
  }
  std::size_t lost = 0;
  for (const RowReading& row : table.processes) {
    CardReading* card = CardOf(row, table.cards, reading.cards);
    if (card == nullptr || !row.process_id || *row.process_id == 0) {
      ++lost;
      continue;
    }
    if (!card->processes) card->processes.emplace();
    card->processes->push_back({*row.process_id, row.process_memory_bytes});
    if (row.container_process_id && row.container_process_id != row.process_id) {
      card->notes.push_back("npu-smi: process " + std::to_string(*row.process_id) + " is process " +
                            std::to_string(*row.container_process_id) + " inside its container.");
    }
  }
  if (lost > 0) {
    reading.notes.push_back("npu-smi: " + std::to_string(lost) + " process line" + (lost == 1 ? "" : "s") +
                            " could not be given to a card.");
  }
}

void NoteHealth(const RowReading& row, CardReading& card) {
  if (!card.state || EqualIgnoringCase(*card.state, "OK")) return;
  std::string note = "npu-smi calls the health of this card " + *card.state + ".";
  if (row.number) note += " See: npu-smi info -t health -i " + std::to_string(*row.number);
  card.notes.push_back(std::move(note));
}

void NoteNumbering(SourceReading& reading) {
  for (std::size_t i = 0; i < reading.cards.size(); ++i) {
    const std::optional<int> index = reading.cards[i].index;
    if (!index || *index == static_cast<int>(i)) continue;
    reading.notes.push_back("npu-smi numbers cards as the host does; torch counts the ones shown from 0, so that npu:" +
                            std::to_string(i) + " is card " + std::to_string(*index) + " here.");
    return;
  }
}

}  // namespace

SourceReading ParseNpuSmi(std::string_view text) {
  SourceReading reading;
  reading.source = "npu-smi";
  const TextLines lines = SplitLines(text, "npu-smi");
  reading.notes = lines.notes;
  ReadVersions(lines, reading);

  CardTable table = ReadCardTable(lines, kTitles, "npu-smi");
  for (const RowReading& row : table.cards) {
    CardReading& card = reading.cards.emplace_back(row.card);
    ChooseMemory(row, card);
    NoteHealth(row, card);
  }
  const bool whole = table.has_both_titles && table.notes.empty();
  NumberCards(table, whole, reading.cards);
  AddProcesses(table, IdleNumbers(lines), reading);
  KeepIdentifiedCards(reading, "npu-smi");
  reading.notes.insert(reading.notes.end(), table.notes.begin(), table.notes.end());
  if (whole) NoteNumbering(reading);
  if (reading.cards.empty()) {
    if (std::optional<std::string> failure = FailureNote(lines)) {
      reading.notes.push_back(std::move(*failure));
    } else if (!table.has_titles) {
      reading.notes.push_back(NoTableNote(lines, "npu-smi"));
    } else if (table.notes.empty()) {
      reading.notes.emplace_back("npu-smi printed a table without cards.");
    }
  }
  return reading;
}

}  // namespace fulldeck::device
