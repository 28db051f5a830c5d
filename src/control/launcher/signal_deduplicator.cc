#include "launcher/signal_deduplicator.h"

namespace fulldeck::launcher {

bool SignalDeduplicator::CameDirectly(base::TimePoint now) {
  if (waiting_) {
    waiting_ = false;
    return true;
  }
  direct_ = now;
  return false;
}

bool SignalDeduplicator::CameFromProxy(base::TimePoint now) {
  const bool ranks_have_it = direct_ && now - *direct_ <= kCounts;
  direct_.reset();
  waiting_ = !ranks_have_it;
  return ranks_have_it;
}

}  // namespace fulldeck::launcher
