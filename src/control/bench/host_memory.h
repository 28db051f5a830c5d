// How much memory this process and its children may still use, and how fast the memory of the node is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/files/system_root.h"

namespace fulldeck::bench {

// The free memory of the machine, or what is left below the limit of this process's cgroup if that is less. nullopt if
// the kernel does not report it.
std::optional<std::uint64_t> AvailableMemory(const base::SystemRoot& root);

// The CPUs that this process may run on.
std::vector<int> UsableCpus();

// Bytes per second that all usable CPUs load and store together while each adds one array to another (a += b: two loads
// and one store, so three bytes per byte of an array), with the widest available registers and with pages as malloc
// returns them. The arrays are larger than any cache that the threads share. Returns the best of a few passes; takes
// about half a second. Creates one thread per CPU, bound to it, and joins them.
double MeasureMemorySpeed(const std::vector<int>& cpus);

}  // namespace fulldeck::bench
