// Stops runs: sends SIGTERM to the front process of each launcher, which passes it on, waits for it, and kills what
// did not end in time. A run whose launcher is already gone is cleaned up. Blocks; not for use inside an event loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "job/runs/run_registry.h"

namespace fulldeck::job {

struct StopOptions {
  // From the signal until SIGKILL; absent: the run's own grace period plus 5 s.
  std::optional<base::Duration> timeout;
  // After SIGKILL, until a process counts as hanging in the kernel.
  base::Duration kill_timeout = std::chrono::seconds(5);
  // Receives a sentence about each step. May be empty.
  std::function<void(const std::string&)> log_line;
};

struct StoppedRun {
  std::string run_id;
  std::string message;  // "stopped in 1.2 s", "did not end within 35 s and was killed with 8 processes"
  bool ok = false;      // nothing of it remains
};

// All are signaled first and then awaited, so that many runs take no longer than the slowest. Results are in the
// order of `entries`.
std::vector<StoppedRun> StopRuns(const RunRegistry& registry, const std::vector<RunRegistry::Entry>& entries,
                                 const StopOptions& options);

}  // namespace fulldeck::job
