// Which rank makes the others wait, step after step, and how much of the time that costs. Pure: it is shown the ranks'
// sums of waiting moment after moment, and reads no clock and no board.
//
// In a data-parallel run all ranks take the same time for a step, because each waits in its collectives for the
// slowest. So the slow one is who waits least. It is named when in two windows in a row, each of at least kWindowSteps
// steps and kWindowTime, the same rank waits less than the median of the others by kShare of the time or more, and is
// the one that waits least in most of the moments of both.
//
// Sums that were sampled, ten times a second or more, are coarser the shorter a step is: their windows and moments last
// longer where steps are shorter than kLongStep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fulldeck::diagnosis {

struct WaitingNow {
  std::uint64_t steps = 0;   // of the loop, or calls of the group where no steps are reported
  base::Duration waited{0};  // in collectives, since the start
  bool sampled = false;      // the sum was made by looking now and then, not by the calls themselves
};

struct Straggler {
  int local_rank = 0;
  double share = 0;               // of the time, which the others lose to it: 0.23
  std::uint64_t after_steps = 0;  // seen over so many
};

class StragglerJudge {
 public:
  static constexpr std::uint64_t kWindowSteps = 8;
  static constexpr base::Duration kWindowTime = std::chrono::seconds(2);
  static constexpr base::Duration kLongStep = std::chrono::milliseconds(500);
  static constexpr base::Duration kCoarseMoment = std::chrono::seconds(2);
  static constexpr base::Duration kCoarseWindowTime = std::chrono::seconds(8);
  static constexpr double kShare = 0.12;

  // One for each rank, in order; nothing from ranks of which it is not known. Fewer than three known ones are never
  // judged: of two, nobody can tell which is slow. A straggler is reported once; when another rank becomes it, that is
  // reported.
  std::optional<Straggler> Judge(base::TimePoint now, const std::vector<std::optional<WaitingNow>>& ranks);

  // The one that was reported last; for the report at the end of a run.
  const std::optional<Straggler>& last() const { return last_; }

 private:
  void Begin(base::TimePoint now, const std::vector<std::optional<WaitingNow>>& ranks);

  std::vector<std::optional<WaitingNow>> begin_;   // of the window
  std::vector<std::optional<WaitingNow>> before_;  // the moment before
  base::TimePoint began_{};
  base::TimePoint before_at_{};
  std::vector<int> least_;  // how often each rank waited least between two moments
  int moments_ = 0;
  std::optional<Straggler> in_last_window_;
  std::optional<Straggler> last_;
};

}  // namespace fulldeck::diagnosis
