// The inventory as people and as programs read it.
#pragma once

#include <string>

#include "device/inventory.h"

namespace fulldeck::cli {

struct ReportOptions {
  bool colors = false;
  bool all_vendors = false;  // also say of each vendor that is not here why
};

// The table, the notes and the host.
std::string DevicesText(const device::Inventory& inventory, const ReportOptions& options);

// One JSON object; docs/devices.md describes it. Absent values are null.
std::string DevicesJson(const device::Inventory& inventory);

}  // namespace fulldeck::cli
