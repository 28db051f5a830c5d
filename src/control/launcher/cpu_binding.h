// The processors that a rank is bound to, by --numa-binding. Reads the kernel's topology below a SystemRoot.
#pragma once

#include <vector>

#include "base/files/system_root.h"
#include "device/host.h"
#include "job/cards/placement.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::launcher {

// Empty: the rank is not bound. Without a mode a rank is bound to its NUMA node where there are several nodes, so that
// it computes beside its card, and is left alone where there is one.
std::vector<int> CpusFor(job::NumaBinding mode, const job::RankPlacement& placement, const device::HostTopology& host,
                         const base::SystemRoot& root);

}  // namespace fulldeck::launcher
