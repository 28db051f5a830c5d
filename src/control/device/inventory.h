// The inventory: every card of this machine, or of the simulated server that replaces it, with its current telemetry.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/files/system_root.h"
#include "base/result.h"
#include "device/card.h"
#include "device/source.h"
#include "device/vendor.h"

namespace fulldeck::device {

struct Inventory {
  bool simulated = false;             // the cards are simulated; real ones were not searched for
  std::vector<VendorReport> vendors;  // one each, including those that were not found
  Card host;

  std::vector<const Card*> Cards() const;  // all accelerators, in display order
};

// How long a vendor's library or tool may take: one that hangs is reported within two seconds.
inline constexpr base::Duration kDefaultTimeout = std::chrono::milliseconds(1500);

struct InventoryOptions {
  base::SystemRoot root;
  base::Environment environment = base::Environment::OfThisProcess();
  base::Duration timeout = kDefaultTimeout;
  std::string helper_program = "/proc/self/exe";
};

// For repeated reads; keeps helper processes in between. Not thread-safe.
class InventoryReader {
 public:
  explicit InventoryReader(InventoryOptions options);

  // Fails only for a malformed FULLDECK_SIMULATE. The failure of a vendor is in its report and does not affect the
  // others.
  base::Result<Inventory> Read();

 private:
  InventoryOptions options_;
  SourceRunner runner_;
};

}  // namespace fulldeck::device
