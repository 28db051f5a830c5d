// Decides what a run does after a failed attempt. Pure: reads no clock, starts no process, keeps no state between
// calls, so that every rule is a row of the table in the test.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace fulldeck::launcher {

struct AttemptRecord {
  std::chrono::milliseconds lived{0};
  std::optional<std::uint64_t> best_step;  // the highest step on the board; absent if no rank reports steps
};

enum class AfterFailure { kRestart, kGiveUp, kCrashLoop };

struct RestartDecision {
  AfterFailure what = AfterFailure::kGiveUp;
  std::chrono::milliseconds delay{0};  // before the next attempt
};

// An attempt made progress if it reached a higher step than every attempt before it or, without steps, lived for at
// least a minute.
bool MadeProgress(const std::vector<AttemptRecord>& attempts, std::size_t which);

// `attempts`: all attempts so far, the failed one last. Without restarts left, the run gives up. With restarts left,
// three attempts in a row without progress are a crash loop. The delay is 0.1 s after progress; otherwise 1 s, doubled
// with each further attempt without progress.
RestartDecision AfterAttempt(const std::vector<AttemptRecord>& attempts, int max_restarts);

}  // namespace fulldeck::launcher
