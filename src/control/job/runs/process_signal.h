// Signals to processes that are identified by pid and start time, so that a process that reuses a pid is never hit.
// Not for children that the caller reaps through an event loop: these functions block.
#pragma once

#include <vector>

#include "base/clock.h"
#include "wire/process_identity.h"

namespace fulldeck::job {

enum class SignalOutcome {
  kSent,
  kGone,     // the process no longer runs
  kRefused,  // it belongs to another user
};

// Checks the identity after it has a handle on the process (pidfd) if the kernel supports that, otherwise just before
// the signal. A process without a known start time, pid 1 and this process itself are never signaled: kGone.
SignalOutcome SendSignal(const wire::ProcessIdentity& process, int signal_number);

// Waits until all have ended (zombies count as ended), at most `timeout`. Returns those that still run.
std::vector<wire::ProcessIdentity> WaitUntilGone(std::vector<wire::ProcessIdentity> processes, base::Duration timeout);

enum class StopOutcome {
  kEnded,       // after SIGTERM
  kKilled,      // only after SIGKILL
  kGone,        // before any signal
  kRefused,     // it belongs to another user
  kUnkillable,  // it did not end even after SIGKILL: it hangs in the kernel
};

// SIGTERM to all, then SIGKILL to those that still run after `grace`, then waits at most `timeout` more. Results are
// in the order of `processes`.
std::vector<StopOutcome> StopProcesses(const std::vector<wire::ProcessIdentity>& processes, base::Duration grace,
                                       base::Duration timeout);

// Whether stopping `pid` would stop the caller: this process, its parent, the parent's parent …
bool IsThisProcessOrAncestor(int pid);

}  // namespace fulldeck::job
