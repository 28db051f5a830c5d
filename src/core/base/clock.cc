#include "base/clock.h"

namespace fulldeck::base {

const SteadyClock& SteadyClock::Instance() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace fulldeck::base
