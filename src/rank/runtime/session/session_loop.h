// Measures where the time of a training loop goes, and writes it to the rank board. A few clock reads and one write to
// the board per step. It does not judge; the monitor does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "fulldeck/rank_board.h"
#include "fulldeck/session.h"

namespace fulldeck::runtime {

// Threads: the loop's, except that any thread may call AddCommunication.
class LoopClock {
 public:
  // `board` may be null, and must outlive it.
  explicit LoopClock(fulldeck_board* board);

  // `work` runs after a step, at most five times a second: for work that costs more than the clock itself.
  void RunPeriodically(std::function<void()> work) { periodic_work_ = std::move(work); }

  // The time until now is added to the previous phase.
  void Enter(Phase phase);
  void BeginStep();
  void Done(std::optional<double> loss, std::uint64_t samples);
  // The step was not completed.
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
  std::uint64_t compute_ns_ = 0;        // including the waiting within it
  std::uint64_t communication_ns_ = 0;  // of the communication phase
  // Relaxed: a plain sum that publishes nothing else.
  std::atomic<std::uint64_t> waited_ns_{0};
};

}  // namespace fulldeck::runtime
