// Identifies a process by pid and start time, so that it cannot be confused with a later process with the same pid.
#pragma once

#include <cstdint>
#include <optional>

#include "base/files/system_root.h"

namespace fulldeck::wire {

struct ProcessIdentity {
  int pid = 0;
  std::uint64_t start_ticks = 0;  // clock ticks since boot, field 22 of /proc/PID/stat; 0 if unknown
};

ProcessIdentity ThisProcess();

// Fields of /proc/PID/stat; nullopt if the process does not exist.
struct ProcessStat {
  char state = '?';  // R running, S sleeping, D in the kernel, T stopped, Z zombie …
  int parent = 0;
  std::uint64_t cpu_ticks = 0;  // user and system time of all threads, in clock ticks
  std::uint64_t start_ticks = 0;
  std::uint64_t resident_pages = 0;
};
std::optional<ProcessStat> ReadProcessStat(int pid, const base::SystemRoot& root = base::SystemRoot());

// The process that has `pid` now; nullopt if there is none.
std::optional<ProcessIdentity> IdentityOf(int pid, const base::SystemRoot& root = base::SystemRoot());

// Whether this process is running. A zombie is not. If the start time is unknown, any process with that pid counts.
bool IsAlive(const ProcessIdentity& identity);

}  // namespace fulldeck::wire
