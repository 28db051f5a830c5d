// The inventory as text and as JSON.
#pragma once

#include <string>

#include "device/inventory.h"

namespace fulldeck::cli {

struct ReportOptions {
  bool colors = false;
  bool all_vendors = false;  // also report why each missing vendor was not found
};

// The table, the notes and the machine itself.
std::string DevicesText(const device::Inventory& inventory, const ReportOptions& options);

// One JSON object; docs/devices.md describes it. Absent values are null.
std::string DevicesJson(const device::Inventory& inventory);

}  // namespace fulldeck::cli
