// Signals to processes that are named by pid and start time, so that a process that got the pid of another is never
// hit. Not for children that the caller reaps through an event loop: these block.
#pragma once

#include <vector>

#include "base/clock.h"
#include "wire/process_identity.h"

namespace fulldeck::job {

enum class SignalOutcome {
  kSent,
  kGone,     // that very process no longer runs
  kRefused,  // it is another user's
};

// Checks the identity after it has a handle on the process (pidfd), where the kernel gives one; else just before the
// signal. A process without a known start time, pid 1 and this process itself are never signaled: kGone.
SignalOutcome SendSignal(const wire::ProcessIdentity& process, int signal_number);

// Waits until all have ended (zombies have), at most `timeout`. Returns those that still live.
std::vector<wire::ProcessIdentity> WaitUntilGone(std::vector<wire::ProcessIdentity> processes, base::Duration timeout);

enum class StopOutcome {
  kEnded,       // after SIGTERM
  kKilled,      // only after SIGKILL
  kGone,        // before any signal
  kRefused,     // it is another user's
  kUnkillable,  // it did not even end after SIGKILL: it hangs in the kernel
};

// SIGTERM to all, then SIGKILL to those that live after `grace`, then at most `timeout` more. In the order given.
std::vector<StopOutcome> StopProcesses(const std::vector<wire::ProcessIdentity>& processes, base::Duration grace,
                                       base::Duration timeout);

// Whether stopping `pid` would stop the caller: this process, its parent, the parent's parent …
bool IsThisProcessOrAncestor(int pid);

}  // namespace fulldeck::job
