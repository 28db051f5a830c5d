// The telemetry of a card as cells of a table. Unknown values are "–".
#pragma once

#include <string>

#include "base/text_table.h"
#include "device/card.h"

namespace fulldeck::cli {

base::Cell UtilizationCell(const device::Telemetry& now);
std::string MemoryText(const device::Card& card);     // "1.0 GiB / 48.0 GiB"
std::string PowerText(const device::Telemetry& now);  // "81 / 300 W"
std::string TemperatureText(const device::Telemetry& now);

}  // namespace fulldeck::cli
