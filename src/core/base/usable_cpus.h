// How many cpus this process may really use: decides whether waiting may spin. Not a topology.
#pragma once

#include <cstdint>
#include <vector>

namespace fulldeck::base {

class SystemRoot;

// The cpus that this thread is allowed on: bit n % 64 of word n / 64.
std::vector<std::uint64_t> AllowedCpus();

// `allowed`, or fewer where a cgroup above this process has a quota of processor time (v2 cpu.max, v1
// cpu.cfs_quota_us): whole ones only, as half a processor is none to spin on. At least 1. Reads files: ask once, not
// while waiting. Any thread.
int UsableCpus(int allowed);
// Of those that this thread is allowed on.
int UsableCpus();

// For tests: the quota of the cgroups below `root`.
int UsableCpus(const SystemRoot& root, int allowed);

}  // namespace fulldeck::base
