// The inventory: every card of this machine, or of the simulated server that stands in for it, with what it does now.
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
  bool simulated = false;             // the cards are simulated; real ones were not looked at
  std::vector<VendorReport> vendors;  // one each, also those that are not here
  Card host;

  std::vector<const Card*> Cards() const;  // all accelerators, in the order shown
};

// How long a vendor's library or tool may take: a hanging one is reported within two seconds.
inline constexpr base::Duration kDefaultTimeout = std::chrono::milliseconds(1500);

struct InventoryOptions {
  base::SystemRoot root;
  base::Environment environment = base::Environment::OfThisProcess();
  base::Duration timeout = kDefaultTimeout;
  std::string helper_program = "/proc/self/exe";
};

// Reads again and again, keeping helper processes in between. Not thread safe.
class InventoryReader {
 public:
  explicit InventoryReader(InventoryOptions options);

  // An error only for a malformed FULLDECK_SIMULATE. A vendor that fails is told in its report, and the others answer.
  base::Result<Inventory> Read();

 private:
  InventoryOptions options_;
  SourceRunner runner_;
};

}  // namespace fulldeck::device
