#include "diagnosis/out_of_memory.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

std::optional<double> UnitBytes(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"bytes", 1.0}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}}};
  for (const auto& [name, bytes] : kUnits) {
    if (unit.starts_with(name)) return bytes;
  }
  return std::nullopt;
}

// "1.50 GiB" at the start of `text`, in bytes.
std::optional<double> QuantityAt(std::string_view text) {
  const auto end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = base::ParseDecimal(text.substr(0, end));
  const auto unit = UnitBytes(base::Trim(text.substr(end)));
  if (!number || !unit) return std::nullopt;
  return *number * *unit;
}

// The quantity directly before `phrase`: "10.76 GiB total capacity".
std::optional<double> QuantityBefore(std::string_view line, std::string_view phrase) {
  const auto at = line.find(phrase);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = base::Trim(line.substr(0, at));
  const auto unit_at = before.rfind(' ');
  if (unit_at == std::string_view::npos) return std::nullopt;
  const auto number_at = before.rfind(' ', unit_at - 1);
  return QuantityAt(before.substr(number_at == std::string_view::npos ? 0 : number_at + 1));
}

// The quantity directly after `phrase`: "this process has 2.97 GiB".
std::optional<double> QuantityAfter(std::string_view line, std::string_view phrase) {
  const auto at = line.find(phrase);
  if (at == std::string_view::npos) return std::nullopt;
  return QuantityAt(base::Trim(line.substr(at + phrase.size())));
}

template <typename... Quantities>
std::optional<double> FirstOf(const Quantities&... quantities) {
  std::optional<double> first;
  ((first = first ? first : quantities), ...);
  return first;
}

// Memory held by this process, in the format of each torch release.
std::optional<double> ProcessMemory(std::string_view line, double total) {
  // 2.0 and later, if the driver distinguishes processes; some drivers report values far above the card's memory.
  if (const auto own = QuantityAfter(line, "this process has"); own && *own <= total) return own;
  // 1.4 and later.
  if (const auto own = QuantityBefore(line, "reserved in total")) return own;
  // Before 1.4: "cached" is, depending on the release, all memory held or only the unused part.
  if (const auto own = QuantityBefore(line, "already allocated")) {
    return std::max(*own, QuantityBefore(line, "cached").value_or(0));
  }
  // 2.0 and later in a container, where our process cannot be identified in the process list.
  if (const auto own = QuantityBefore(line, "is allocated by PyTorch")) {
    return *own + QuantityBefore(line, "is reserved by PyTorch but unallocated").value_or(0);
  }
  return std::nullopt;
}

}  // namespace

std::optional<MemoryHog> WhoHoldsTheMemory(std::string_view line) {
  const auto total = FirstOf(QuantityBefore(line, "total capacity"), QuantityAfter(line, "has a total capacity of"),
                             QuantityAfter(line, "has a total capacty of"));
  const auto free =
      FirstOf(QuantityBefore(line, "free;"), QuantityBefore(line, "is free"), QuantityBefore(line, "free."));
  if (!total || !free || *total <= 0) return std::nullopt;
  const auto own = ProcessMemory(line, *total);
  if (!own) return std::nullopt;
  // Memory that is neither ours nor free belongs to other processes; the driver itself uses a little of every card.
  const double others = *total - *free - *own;
  return others > 0.25 * *total && others > *own ? MemoryHog::kAnotherProcess : MemoryHog::kThisProcess;
}

}  // namespace fulldeck::diagnosis
