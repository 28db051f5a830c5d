#include "launcher/signal_copies.h"

namespace fulldeck::launcher {

bool SignalCopies::CameStraight(base::TimePoint now) {
  if (waiting_) {
    waiting_ = false;
    return true;
  }
  straight_ = now;
  return false;
}

bool SignalCopies::CameFromFront(base::TimePoint now) {
  const bool ranks_have_it = straight_ && now - *straight_ <= kCounts;
  straight_.reset();
  waiting_ = !ranks_have_it;
  return ranks_have_it;
}

}  // namespace fulldeck::launcher
