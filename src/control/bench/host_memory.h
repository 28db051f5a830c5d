// How much memory this process and its children may still take, and how fast the host's memory is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/files/system_root.h"

namespace fulldeck::bench {

// What is free on the machine, or left below the limit of this process's cgroup where that is less. Nothing when the
// kernel does not say.
std::optional<std::uint64_t> AvailableMemory(const base::SystemRoot& root);

// The cpus that this process may run on.
std::vector<int> UsableCpus();

// Bytes a second that all usable cpus load and store together while each adds one array to another (a += b: two
// loads and one store, so three bytes for each byte of an array), with the widest registers that there are and with
// pages as malloc gives them. The arrays are larger than any cache that the threads share. Best of a few passes; takes
// about half a second. Makes one thread a processor, bound to it, and joins them.
double MeasureMemorySpeed(const std::vector<int>& cpus);

}  // namespace fulldeck::bench
