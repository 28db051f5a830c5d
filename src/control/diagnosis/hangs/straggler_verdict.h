// Finds the rank that makes the others wait step after step, and how much time that costs. Pure: takes the ranks' total
// waiting times, sample by sample, and reads no clock and no board.
//
// In a data-parallel run every rank takes the same time per step, because each waits in its collectives for the
// slowest. The slow rank is therefore the one that waits least. It is reported if in two consecutive windows, each of
// at least kWindowSteps steps and kWindowTime, the same rank waits less than the median of the others by at least
// kShare of the time, and waits least between most samples of both windows.
//
// Totals that were sampled (ten times per second or more) are less accurate for short steps. If steps are shorter than
// kLongStep, their windows and sample intervals are longer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fulldeck::diagnosis {

struct WaitingNow {
  std::uint64_t steps = 0;   // of the loop, or collectives of the group if no steps are reported
  base::Duration waited{0};  // in collectives, since the start
  bool sampled = false;      // the total was sampled rather than measured by the collectives themselves
};

struct Straggler {
  int local_rank = 0;
  double share = 0;               // fraction of the time that the others lose: 0.23
  std::uint64_t after_steps = 0;  // observed over this many steps
};

class StragglerJudge {
 public:
  static constexpr std::uint64_t kWindowSteps = 8;
  static constexpr base::Duration kWindowTime = std::chrono::seconds(2);
  static constexpr base::Duration kLongStep = std::chrono::milliseconds(500);
  static constexpr base::Duration kCoarseMoment = std::chrono::seconds(2);
  static constexpr base::Duration kCoarseWindowTime = std::chrono::seconds(8);
  static constexpr double kShare = 0.12;

  // `ranks`: one per rank, in order; nullopt if unknown. With fewer than three known ranks there is no verdict: of two,
  // it cannot be decided which one is slow. A straggler is returned once; another rank that becomes the straggler is
  // returned again.
  std::optional<Straggler> Judge(base::TimePoint now, const std::vector<std::optional<WaitingNow>>& ranks);

  // The straggler that was reported last; for the report at the end of a run.
  const std::optional<Straggler>& last() const { return last_; }

 private:
  void Begin(base::TimePoint now, const std::vector<std::optional<WaitingNow>>& ranks);

  std::vector<std::optional<WaitingNow>> begin_;   // start of the window
  std::vector<std::optional<WaitingNow>> before_;  // the previous sample
  base::TimePoint began_{};
  base::TimePoint before_at_{};
  std::vector<int> least_;  // how often each rank waited least between two samples
  int moments_ = 0;
  std::optional<Straggler> in_last_window_;
  std::optional<Straggler> last_;
};

}  // namespace fulldeck::diagnosis
