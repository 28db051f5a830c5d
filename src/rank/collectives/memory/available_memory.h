// How much memory this process could still get, so that a request for more can be refused. Without asking, the answer
// to such a request is the kernel's out-of-memory killer. An estimate: others take memory too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files/system_root.h"

namespace fulldeck::collectives {

struct AvailableMemory {
  std::uint64_t bytes = 0;  // free, or taken only by files that can be read again
  std::string of;           // what bounds it: "this machine", "the cgroup /job"
};

// The least of what the machine and every cgroup that this process is in have left; nothing when no bound is known.
// Reads a few files. Any thread.
std::optional<AvailableMemory> ReadAvailableMemory(const base::SystemRoot& root = base::SystemRoot());

}  // namespace fulldeck::collectives
