// How many CPUs this process may really use: decides whether waits may spin. Not a topology.
#pragma once

#include <cstdint>
#include <vector>

namespace fulldeck::base {

class SystemRoot;

// The CPUs in the affinity mask of this thread: bit n % 64 of word n / 64.
std::vector<std::uint64_t> AllowedCpus();

// `allowed`, or fewer if a cgroup above this process has a CPU quota (v2 cpu.max, v1 cpu.cfs_quota_us). Rounded down,
// because a fraction of a CPU does not suffice for spinning. At least 1. Reads files: call it once, not while waiting.
// Thread safe.
int UsableCpus(int allowed);
// The same, for the CPUs in the affinity mask of this thread.
int UsableCpus();

// For tests: uses the quota of the cgroups below `root`.
int UsableCpus(const SystemRoot& root, int allowed);

}  // namespace fulldeck::base
