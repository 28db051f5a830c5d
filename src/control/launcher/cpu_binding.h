// Computes the CPU cores that a rank is bound to (--numa-binding). Reads the kernel's topology below a SystemRoot.
#pragma once

#include <vector>

#include "base/files/system_root.h"
#include "device/host.h"
#include "job/cards/placement.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::launcher {

// Empty: the rank is not bound. Without a mode, a rank is bound to the NUMA node of its card if the machine has more
// than one NUMA node; otherwise it is not bound.
std::vector<int> CpusFor(job::NumaBinding mode, const job::RankPlacement& placement, const device::HostTopology& host,
                         const base::SystemRoot& root);

}  // namespace fulldeck::launcher
