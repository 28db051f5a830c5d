// Tells a signal that somebody sent to the launcher from one that a cluster's manager sent to every process of the job,
// the ranks too (Slurm's scancel --signal): that one must not reach the ranks a second time, when they may already be
// ending and no longer catch it. The front passes what it gets on by a signal of its own kind (launcher_proxy.h), so
// the supervisor knows which copy came straight to it. Pure: told the time, sends nothing. One object a signal.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace fulldeck::launcher {

class SignalDeduplicator {
 public:
  // After a copy from the front, wait this long for a straight one before the ranks are signaled.
  static constexpr std::chrono::milliseconds kDirectSignalWait{100};
  // A front that is kept from running passes its copy on so much later at most.
  static constexpr std::chrono::seconds kCounts{5};

  // A straight copy. True when a copy from the front was waiting for it: the ranks have the signal, do not pass it on.
  bool CameDirectly(base::TimePoint now);
  // From the front. True when a straight copy came before: the ranks have it. Else pass it on after kDirectSignalWait,
  // unless CameDirectly says otherwise until then.
  bool CameFromProxy(base::TimePoint now);
  // kDirectSignalWait is over.
  void Forwarded() { waiting_ = false; }

 private:
  std::optional<base::TimePoint> direct_;  // not yet matched by the front's
  bool waiting_ = false;
};

}  // namespace fulldeck::launcher
