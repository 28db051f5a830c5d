#include "cli/card_cells.h"

#include <fmt/format.h>

#include <optional>

#include "base/text.h"

namespace fulldeck::cli {

std::string MemoryText(const device::Card& card) {
  const auto& used = card.telemetry.memory_used_bytes;
  if (!used && !card.memory_total_bytes) return base::kAbsent;
  return fmt::format("{} / {}", used ? base::FormatByteSize(*used) : base::kAbsent,
                     card.memory_total_bytes ? base::FormatByteSize(*card.memory_total_bytes) : base::kAbsent);
}

std::string PowerText(const device::Telemetry& now) {
  if (!now.power_watts && !now.power_limit_watts) return base::kAbsent;
  const auto watts = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.0f}", *value) : base::kAbsent;
  };
  return fmt::format("{} / {} W", watts(now.power_watts), watts(now.power_limit_watts));
}

base::Cell UtilizationCell(const device::Telemetry& now) {
  if (!now.utilization_percent) return {base::kAbsent};
  const base::Color color = *now.utilization_percent > 0 ? base::Color::kGreen : base::Color::kNone;
  return {fmt::format("{:.0f} %", *now.utilization_percent), color};
}

std::string TemperatureText(const device::Telemetry& now) {
  return now.temperature_celsius ? fmt::format("{:.0f} °C", *now.temperature_celsius) : base::kAbsent;
}

}  // namespace fulldeck::cli
