#include "device/text/titled_row.h"

#include <utility>

#include "base/text.h"
#include "device/pci_address.h"

namespace fulldeck::device {
namespace {

constexpr std::int64_t kMaxCardNumber = 65535;  // npu-smi numbers some cards in steps of 32768
constexpr std::int64_t kMaxProcessId = 4194304;

// How many of the words at the front of `words` spell `title`; 0 if they do not.
std::size_t TitleLength(std::span<const std::string_view> words, std::string_view title) {
  std::size_t length = 0;
  for (std::string_view word = TakeWord(title); !word.empty(); word = TakeWord(title)) {
    if (length == words.size() || !EqualIgnoringCase(words[length], word)) return 0;
    ++length;
  }
  return length;
}

// The text from the first to the last of these words, which are in one cell.
std::string_view Joined(std::string_view first, std::string_view last) {
  return {first.data(), static_cast<std::size_t>(last.data() + last.size() - first.data())};
}

std::string_view TakeQuantity(std::string_view& rest) {
  const std::string_view number = TakeWord(rest);
  std::string_view behind = rest;
  const std::string_view unit = TakeWord(behind);
  if (unit.empty() || !IsUnit(unit) || !base::ParseDecimal(number)) return number;
  rest = behind;
  return Joined(number, unit);
}

struct Pair {
  std::string_view first;
  std::string_view second;
};

Pair TakePair(std::string_view& rest) {
  std::string_view first = TakeWord(rest);
  std::string_view behind = rest;
  std::string_view next = TakeWord(behind);
  const std::size_t slash = IsAbsentMark(first) ? std::string_view::npos : first.find('/');
  if (slash != std::string_view::npos && slash + 1 < first.size()) {  // "68W/300W"
    return {first.substr(0, slash), first.substr(slash + 1)};
  }
  if (slash != std::string_view::npos) {  // "29096/ 32768"
    rest = behind;
    return {first.substr(0, slash), next};
  }
  if (!next.empty() && next.front() == '/') {  // "68W / 300W", "68W /300W"
    next.remove_prefix(1);
    if (next.empty()) next = TakeWord(behind);
    rest = behind;
    return {first, next};
  }
  if (!next.empty() && next.front() >= '0' && next.front() <= '9') {  // "48.0W  300W"
    rest = behind;
    return {first, next};
  }
  return {first, {}};
}

// A word such as Sleep, LP0, OK. A word that begins with a digit is a different value that slipped under this title.
std::optional<std::string> StateWord(std::string_view text) {
  if (text.empty() || text.size() > 24) return std::nullopt;
  const char c = text.front();
  if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return std::nullopt;
  return PlainText(text);
}

template <typename T, typename From>
bool Store(const std::optional<From>& value, std::optional<T>& into) {
  if (!value) return false;
  into = static_cast<T>(*value);
  return true;
}

bool StoreText(std::optional<std::string> value, std::optional<std::string>& into) {
  if (!value) return false;
  into = std::move(value);
  return true;
}

// Returns false if the text is present but invalid.
bool StoreSingle(Field field, std::string_view text, RowReading& row) {
  if (IsAbsentMark(text)) return true;
  CardReading& card = row.card;
  switch (field) {
    case Field::kIgnored:
      return true;
    case Field::kNumber:
      return Store(Whole(text, kMaxCardNumber), row.number);
    case Field::kChip:
      return Store(Whole(text, kMaxCardNumber), row.chip);
    case Field::kPhysicalId:
      return Store(Whole(text, kMaxCardNumber), row.physical_id);
    case Field::kModel:
      return StoreText(PlainText(text), card.model);
    case Field::kFirmware:
      return StoreText(PlainText(text), card.firmware);
    case Field::kPciAddress:
      return StoreText(NormalPciAddress(text), card.pci_address);
    case Field::kState:
      return StoreText(StateWord(text), card.state);
    case Field::kSerial:
      return StoreText(PlainText(text), card.serial);
    case Field::kUuid:
      return StoreText(PlainText(text), card.uuid);
    case Field::kTemperature:
      return Store(Celsius(text), card.temperature_celsius);
    case Field::kPower:
      return Store(Watts(text), card.power_watts);
    case Field::kUtilization:
      return Store(Percent(text), card.utilization_percent);
    case Field::kMemoryTotal:
      return Store(Bytes(text, "MiB"), card.memory_total_bytes);
    case Field::kProcessId:
      return Store(Whole(text, kMaxProcessId), row.process_id);
    case Field::kProcessMemory:
      return Store(Bytes(text, "MiB"), row.process_memory_bytes);
    case Field::kContainerProcessId:
      return Store(Whole(text, kMaxProcessId), row.container_process_id);
    case Field::kPowerAndLimit:
    case Field::kMemoryUse:
    case Field::kHbmUse:
      break;  // pairs
  }
  return false;
}

bool StoreMemoryUse(const Pair& pair, std::optional<std::uint64_t>& used, std::optional<std::uint64_t>& total) {
  const std::optional<std::uint64_t> used_bytes = Bytes(pair.first, "MiB");
  const std::optional<std::uint64_t> total_bytes = Bytes(pair.second, "MiB");
  if (!used_bytes || !total_bytes || *used_bytes > *total_bytes) return false;
  used = used_bytes;
  total = total_bytes;
  return true;
}

bool StorePair(Field field, const Pair& pair, RowReading& row) {
  if (field == Field::kIgnored) return true;
  if (IsAbsentMark(pair.first) && IsAbsentMark(pair.second)) return true;
  if (field == Field::kHbmUse) return StoreMemoryUse(pair, row.card.memory_used_bytes, row.card.memory_total_bytes);
  if (field == Field::kMemoryUse) {
    return StoreMemoryUse(pair, row.other_memory_used_bytes, row.other_memory_total_bytes);
  }
  const bool first = IsAbsentMark(pair.first) || Store(Watts(pair.first), row.card.power_watts);
  const bool second = IsAbsentMark(pair.second) || Store(Watts(pair.second), row.card.power_limit_watts);
  return first && second;
}

bool TakeValue(const Title& title, std::string_view& rest, RowReading& row) {
  switch (title.extent) {
    case Extent::kWord:
      return StoreSingle(title.field, TakeWord(rest), row);
    case Extent::kQuantity:
      return StoreSingle(title.field, TakeQuantity(rest), row);
    case Extent::kPair:
      return StorePair(title.field, TakePair(rest), row);
    case Extent::kRest:
      break;
  }
  return StoreSingle(title.field, base::Trim(std::exchange(rest, {})), row);
}

}  // namespace

std::optional<TitleLine> ReadTitleLine(const BoxedRow& row, std::span<const Title> known) {
  TitleLine titles;
  int recognized = 0;
  int foreign = 0;
  for (const std::string_view cell : row.cells) {
    const std::vector<std::string_view> words = Words(cell);
    std::span<const std::string_view> rest = words;
    std::vector<Title>& in_cell = titles.emplace_back();
    while (!rest.empty()) {
      const Title* best = nullptr;
      std::size_t best_length = 0;
      for (const Title& title : known) {
        const std::size_t length = TitleLength(rest, title.words);
        if (length > best_length) best = &title, best_length = length;
      }
      if (best != nullptr) {
        ++recognized;
        in_cell.push_back(*best);
        rest = rest.subspan(best_length);
      } else {
        ++foreign;
        in_cell.push_back({"?", Field::kIgnored, Extent::kWord});
        rest = rest.subspan(1);
      }
    }
  }
  if (recognized < 2 || foreign > recognized) return std::nullopt;
  return titles;
}

bool HasTitle(const TitleLine& titles, Field field) {
  for (const std::vector<Title>& cell : titles) {
    for (const Title& title : cell) {
      if (title.field == field) return true;
    }
  }
  return false;
}

std::string WantedTitles(const TitleLine& titles) {
  std::string out;
  for (const std::vector<Title>& cell : titles) {
    for (const Title& title : cell) {
      if (title.field == Field::kIgnored) continue;
      if (!out.empty()) out += ", ";
      out += title.words;
    }
  }
  return out;
}

RowReading ReadRow(const TitleLine& titles, const BoxedRow& row) {
  RowReading reading;
  reading.cut = !row.closed || row.cells.size() < titles.size();
  for (std::size_t i = 0; i < titles.size() && i < row.cells.size(); ++i) {
    std::string_view rest = row.cells[i];
    for (const Title& title : titles[i]) {
      const bool missing = base::Trim(rest).empty();
      const bool sensible = TakeValue(title, rest, reading);
      if (!sensible) {
        reading.unreadable.push_back(title.words);
      } else if (title.field != Field::kIgnored) {
        ++(missing ? reading.missing : reading.understood);
      }
    }
    // Words without a title: the cell does not match the title line.
    if (!base::Trim(rest).empty() && !titles[i].empty()) reading.unreadable.push_back(titles[i].back().words);
  }
  if (row.closed && row.cells.size() != titles.size()) ++reading.missing;
  return reading;
}

void FillAbsent(const CardReading& from, CardReading& into) {
  const auto fill = [](const auto& source, auto& target) {
    if (!target && source) target = source;
  };
  fill(from.index, into.index);
  fill(from.model, into.model);
  fill(from.serial, into.serial);
  fill(from.uuid, into.uuid);
  fill(from.pci_address, into.pci_address);
  fill(from.firmware, into.firmware);
  fill(from.memory_total_bytes, into.memory_total_bytes);
  fill(from.memory_used_bytes, into.memory_used_bytes);
  fill(from.utilization_percent, into.utilization_percent);
  fill(from.power_watts, into.power_watts);
  fill(from.power_limit_watts, into.power_limit_watts);
  fill(from.temperature_celsius, into.temperature_celsius);
  fill(from.state, into.state);
  fill(from.processes, into.processes);
}

}  // namespace fulldeck::device
