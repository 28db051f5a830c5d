// Distinguishes a signal that was sent only to the launcher from one that a scheduler sent to every process of the job,
// including the ranks (Slurm's scancel --signal). The latter must not be forwarded: the ranks would get it a second
// time, when they may already be exiting and no longer handle it. The front forwards its copy as a different signal
// (launcher_proxy.h), so the supervisor can identify the copy that it received directly. Pure: takes the time as an
// argument, sends nothing. One object per signal.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace fulldeck::launcher {

class SignalDeduplicator {
 public:
  // After a copy from the front, wait this long for a direct copy before signaling the ranks.
  static constexpr std::chrono::milliseconds kDirectSignalWait{100};
  // Upper bound on the delay of the front's copy if the front was not scheduled.
  static constexpr std::chrono::seconds kCounts{5};

  // A direct copy arrived. True if a copy from the front was waiting for it: the ranks have the signal; do not forward
  // it.
  bool CameDirectly(base::TimePoint now);
  // A copy from the front arrived. True if a direct copy came before: the ranks have the signal. Otherwise forward it
  // after kDirectSignalWait, unless CameDirectly returns true before.
  bool CameFromProxy(base::TimePoint now);
  // kDirectSignalWait has elapsed.
  void Forwarded() { waiting_ = false; }

 private:
  std::optional<base::TimePoint> direct_;  // not yet matched by the front's copy
  bool waiting_ = false;
};

}  // namespace fulldeck::launcher
