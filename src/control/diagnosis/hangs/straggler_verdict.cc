#include "diagnosis/hangs/straggler_verdict.h"

#include <algorithm>

namespace fulldeck::diagnosis {
namespace {

// The rank that waited least between two samples, and how much less than the median of the others.
struct Least {
  int local_rank = -1;
  base::Duration behind{0};
};

Least LeastWaiting(const std::vector<std::optional<WaitingNow>>& from,
                   const std::vector<std::optional<WaitingNow>>& to) {
  std::vector<std::pair<base::Duration, int>> waited;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (from[i] && to[i]) waited.emplace_back(to[i]->waited - from[i]->waited, static_cast<int>(i));
  }
  if (waited.size() < 3) return {};
  std::sort(waited.begin(), waited.end());
  // Median of the others: those after the first.
  const base::Duration median = waited[1 + (waited.size() - 1) / 2].first;
  return {waited[0].second, median - waited[0].first};
}

std::uint64_t LeastSteps(const std::vector<std::optional<WaitingNow>>& from,
                         const std::vector<std::optional<WaitingNow>>& to) {
  std::optional<std::uint64_t> least;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!from[i] || !to[i]) continue;
    const std::uint64_t steps = to[i]->steps - std::min(from[i]->steps, to[i]->steps);
    least = std::min(least.value_or(steps), steps);
  }
  return least.value_or(0);
}

}  // namespace

void StragglerJudge::Begin(base::TimePoint now, const std::vector<std::optional<WaitingNow>>& ranks) {
  begin_ = before_ = ranks;
  began_ = before_at_ = now;
  least_.assign(ranks.size(), 0);
  moments_ = 0;
}

std::optional<Straggler> StragglerJudge::Judge(base::TimePoint now,
                                               const std::vector<std::optional<WaitingNow>>& ranks) {
  const auto known = [](const std::vector<std::optional<WaitingNow>>& all) {
    return std::count_if(all.begin(), all.end(), [](const auto& one) { return one.has_value(); });
  };
  if (begin_.size() != ranks.size() || known(begin_) != known(ranks)) {
    Begin(now, ranks);
    in_last_window_.reset();
    return std::nullopt;
  }
  const bool sampled =
      std::any_of(ranks.begin(), ranks.end(), [](const auto& one) { return one.has_value() && one->sampled; });
  const std::uint64_t steps = LeastSteps(begin_, ranks);
  const base::Duration time = now - began_;
  const bool coarse = sampled && time < kLongStep * static_cast<std::int64_t>(steps);
  if (LeastSteps(before_, ranks) > 0 && (!coarse || now - before_at_ >= kCoarseMoment)) {
    const Least least = LeastWaiting(before_, ranks);
    if (least.local_rank >= 0) ++least_[static_cast<std::size_t>(least.local_rank)];
    ++moments_;
    before_ = ranks;
    before_at_ = now;
  }
  if (steps < kWindowSteps || time < (coarse ? kCoarseWindowTime : kWindowTime)) return std::nullopt;

  const Least least = LeastWaiting(begin_, ranks);
  std::optional<Straggler> seen;
  if (least.local_rank >= 0) {
    const double share = std::chrono::duration<double>(least.behind) / std::chrono::duration<double>(time);
    const bool steady = least_[static_cast<std::size_t>(least.local_rank)] * 4 >= moments_ * 3;
    if (share >= kShare && steady) seen = Straggler{least.local_rank, share, steps};
  }
  std::optional<Straggler> reported;
  if (seen && in_last_window_ && in_last_window_->local_rank == seen->local_rank) {
    seen->after_steps += in_last_window_->after_steps;
    if (!last_ || last_->local_rank != seen->local_rank) reported = seen;
    last_ = seen;
  }
  in_last_window_ = seen;
  Begin(now, ranks);
  return reported;
}

}  // namespace fulldeck::diagnosis
