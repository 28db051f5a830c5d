// Where the time of a training loop goes, and what of it the rank board is told. A few clock reads and one write to the
// board a step.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "fulldeck/rank_board.h"
#include "fulldeck/session.h"

namespace fulldeck::runtime {

// Threads: the loop's, but for AddCommunication, which any may call.
class LoopClock {
 public:
  // `board` may be null, and lives longer.
  explicit LoopClock(fulldeck_board* board);

  // After a step, at most five times a second: for what costs more than the clock itself.
  void RunPeriodically(std::function<void()> work) { periodic_work_ = std::move(work); }

  // The time until now counts for the phase before.
  void Enter(Phase phase);
  void BeginStep();
  void Done(std::optional<double> loss, std::uint64_t samples);
  // The step did not come to its end.
  void Abandon();
  void AddCommunication(std::chrono::nanoseconds time);

  void SetProgress(std::uint64_t steps_done, std::uint64_t total_steps, std::uint64_t epoch);
  void SetFingerprints(std::uint64_t batch, std::uint64_t parameters);
  const fulldeck_board_figures& figures() const { return figures_; }

 private:
  using Clock = std::chrono::steady_clock;
  void CountUntil(Clock::time_point now);

  fulldeck_board* const board_;
  fulldeck_board_figures figures_ = {};
  Phase phase_ = Phase::kInit;
  Clock::time_point since_ = Clock::now();
  std::function<void()> periodic_work_;
  Clock::time_point next_time_ = Clock::now();
  std::uint64_t compute_ns_ = 0;        // with the waiting inside it
  std::uint64_t communication_ns_ = 0;  // of the phase of that name
  // Plain counting: nothing else is published with it.
  std::atomic<std::uint64_t> waited_ns_{0};
};

}  // namespace fulldeck::runtime
