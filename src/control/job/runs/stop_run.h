// Stops runs: asks each launcher (SIGTERM to its front process, which passes it on), waits for it, and kills what did
// not end in time. A run whose launcher is gone already is cleaned up. Blocks; not for inside an event loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "job/runs/run_registry.h"

namespace fulldeck::job {

struct StopOptions {
  // From the signal until SIGKILL; absent: the run's own grace and 5 s.
  std::optional<base::Duration> timeout;
  // After SIGKILL, until a process counts as hanging in the kernel.
  base::Duration kill_timeout = std::chrono::seconds(5);
  // A sentence about what goes on. May be empty.
  std::function<void(const std::string&)> log_line;
};

struct StoppedRun {
  std::string run_id;
  std::string message;  // "stopped in 1.2 s", "did not end within 35 s and was killed with 8 processes"
  bool ok = false;      // nothing of it is left
};

// All are asked first, and then waited for, so that many take no longer than the slowest. In the order given.
std::vector<StoppedRun> StopRuns(const RunRegistry& registry, const std::vector<RunRegistry::Entry>& entries,
                                 const StopOptions& options);

}  // namespace fulldeck::job
