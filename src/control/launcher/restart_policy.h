// Decides what a run does after an attempt failed. Pure: reads no clock, starts nothing, keeps no state between calls,
// so that every rule is a row of the table in the test.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace fulldeck::launcher {

struct AttemptRecord {
  std::chrono::milliseconds lived{0};
  std::optional<std::uint64_t> best_step;  // the furthest step on the board; absent when no rank writes one
};

enum class AfterFailure { kRestart, kGiveUp, kCrashLoop };

struct RestartDecision {
  AfterFailure what = AfterFailure::kGiveUp;
  std::chrono::milliseconds delay{0};  // before the next attempt
};

// An attempt made progress when it got further than every attempt before it; without steps, when it lived for a minute.
bool MadeProgress(const std::vector<AttemptRecord>& attempts, std::size_t which);

// `attempts` are all so far, the failed one last. Without restarts left the run gives up; with some left, three
// attempts in a row without progress are a crash loop. The delay is 0.1 s after progress; without any it is 1 s, and
// doubles with each such attempt.
RestartDecision AfterAttempt(const std::vector<AttemptRecord>& attempts, int max_restarts);

}  // namespace fulldeck::launcher
