// Names a process so that it cannot be confused with a later one that got the same pid: pid and start time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/files/system_root.h"

namespace fulldeck::wire {

struct ProcessIdentity {
  int pid = 0;
  std::uint64_t start_ticks = 0;  // clock ticks since boot, field 22 of /proc/PID/stat; 0 when it is not known
};

ProcessIdentity ThisProcess();

// What /proc/PID/stat tells; nothing when there is no such process.
struct ProcessStat {
  char state = '?';  // R running, S sleeping, D in the kernel, T stopped, Z zombie …
  int parent = 0;
  std::uint64_t cpu_ticks = 0;  // user and system time of all threads, in clock ticks
  std::uint64_t start_ticks = 0;
  std::uint64_t resident_pages = 0;
};
std::optional<ProcessStat> ReadProcessStat(int pid, const base::SystemRoot& root = base::SystemRoot());

// The process that has `pid` now; nothing when there is none.
std::optional<ProcessIdentity> IdentityOf(int pid, const base::SystemRoot& root = base::SystemRoot());

// Whether this very process runs. A zombie does not. With an unknown start time any process of that pid counts.
bool IsAlive(const ProcessIdentity& identity);

}  // namespace fulldeck::wire
