// Estimates how much memory this process could still get, so that a larger request can be rejected. Otherwise the
// kernel's out-of-memory killer would kill a process. Only an estimate: other processes allocate too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files/system_root.h"

namespace fulldeck::collectives {

struct AvailableMemory {
  std::uint64_t bytes = 0;  // free, or used only by the page cache that can be reclaimed
  std::string of;           // what the limit belongs to: "this machine", "the cgroup /job"
};

// The minimum of what is left on the machine and in every cgroup of this process; nullopt if no limit is known. Reads a
// few files. Thread safe.
std::optional<AvailableMemory> ReadAvailableMemory(const base::SystemRoot& root = base::SystemRoot());

}  // namespace fulldeck::collectives
