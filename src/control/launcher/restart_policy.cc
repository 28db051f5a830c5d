#include "launcher/restart_policy.h"

#include <algorithm>

namespace fulldeck::launcher {

using std::chrono::milliseconds;

bool MadeProgress(const std::vector<AttemptRecord>& attempts, std::size_t which) {
  const AttemptRecord& attempt = attempts[which];
  if (!attempt.best_step) return attempt.lived >= std::chrono::seconds(60);
  std::optional<std::uint64_t> best_before;
  for (std::size_t i = 0; i < which; ++i) {
    if (attempts[i].best_step) best_before = std::max(best_before.value_or(0), *attempts[i].best_step);
  }
  return best_before ? *attempt.best_step > *best_before : *attempt.best_step > 0;
}

RestartDecision AfterAttempt(const std::vector<AttemptRecord>& attempts, int max_restarts) {
  constexpr int kCrashLoop = 3;
  constexpr milliseconds kAfterProgress{100};
  constexpr milliseconds kFirstDelay{1'000};
  int without_progress = 0;
  for (std::size_t i = attempts.size(); i > 0 && !MadeProgress(attempts, i - 1); --i) ++without_progress;
  const int restarts_so_far = static_cast<int>(attempts.size()) - 1;
  if (restarts_so_far >= max_restarts) return {AfterFailure::kGiveUp, milliseconds(0)};
  if (without_progress >= kCrashLoop) return {AfterFailure::kCrashLoop, milliseconds(0)};
  if (without_progress == 0) return {AfterFailure::kRestart, kAfterProgress};
  return {AfterFailure::kRestart, kFirstDelay * (1 << (without_progress - 1))};
}

}  // namespace fulldeck::launcher
