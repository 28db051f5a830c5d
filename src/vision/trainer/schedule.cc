#include "trainer/schedule.h"

#include <algorithm>
#include <cmath>

namespace fulldeck::trainer {

double Schedule::At(std::int64_t step) const {
  if (step < warmup) return first + (peak - first) * static_cast<double>(step) / static_cast<double>(warmup);
  const double whole = static_cast<double>(std::max<std::int64_t>(total - warmup, 1));
  const double done = std::clamp(static_cast<double>(step - warmup) / whole, 0.0, 1.0);
  switch (decay) {
    case config::Decay::kPoly:
      return last + (peak - last) * std::pow(1 - done, power);
    case config::Decay::kCosine:
      return last + (peak - last) * 0.5 * (1 + std::cos(M_PI * done));
    case config::Decay::kConstant:
      return peak;
  }
  return peak;
}

Schedule ScheduleOf(const config::Train& train, double peak, std::int64_t total_steps) {
  return {peak,        train.warmup_lr, train.min_lr, config::WarmupSteps(train, total_steps),
          total_steps, train.decay,     train.power};
}

}  // namespace fulldeck::trainer
