#include "diagnosis/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace fulldeck::diagnosis {
namespace {

// Nanoseconds, sum over all ranks.
struct Shares {
  double data = 0;
  double compute = 0;
  double communication = 0;
  double checkpoint = 0;
  double all() const { return data + compute + communication + checkpoint; }
};

void Add(Shares& shares, const RankSnapshot& snapshot, std::uint64_t waited_before) {
  const wire::Loop& loop = *snapshot.loop;
  double compute = static_cast<double>(loop.compute_ns);
  double communication = static_cast<double>(loop.communication_ns);
  if (loop.communication_ns == 0) {
    // A loop that does not report its communication time counts it as compute.
    const std::uint64_t waited = snapshot.waited_ns - std::min(snapshot.waited_ns, waited_before);
    communication = std::min(static_cast<double>(waited), compute);
    compute -= communication;
  }
  shares.data += static_cast<double>(loop.data_ns);
  shares.compute += compute;
  shares.communication += communication;
  shares.checkpoint += static_cast<double>(loop.checkpoint_ns);
}

double Rounded(double value, double unit) {
  return std::round(value / unit) * unit;
}

}  // namespace

void RunSummary::Update(const std::vector<RankSnapshot>& ranks) {
  for (const RankSnapshot& snapshot : ranks) {
    if (!snapshot.loop || snapshot.loop->step_at_ns == 0) {
      std::uint64_t& waited = waited_before_steps_[snapshot.rank];
      waited = std::max(waited, snapshot.waited_ns);
      continue;
    }
    const auto [found, is_new] = ranks_.try_emplace(snapshot.rank);
    if (is_new) found->second.first = {snapshot.loop->step, snapshot.loop->step_at_ns, snapshot.loop->samples};
    // A rank that has left its groups no longer reports its waiting time in them.
    const std::uint64_t waited = std::max(found->second.last.waited_ns, snapshot.waited_ns);
    found->second.last = snapshot;
    found->second.last.waited_ns = waited;
  }
}

std::optional<events::Event> RunSummary::AtTheEnd(int world_size) const {
  if (ranks_.empty()) return std::nullopt;
  std::uint64_t steps = 0;
  // Ranks of one run step together: the slowest sets the pace, and samples add up.
  std::optional<double> steps_per_second;
  double samples_per_second = 0;
  double batch = 0;
  Shares shares;
  for (const auto& [rank, seen] : ranks_) {
    const wire::Loop& loop = *seen.last.loop;
    steps = std::max(steps, loop.step);
    const auto before = waited_before_steps_.find(rank);
    Add(shares, seen.last, before == waited_before_steps_.end() ? 0 : before->second);
    const auto done = loop.step > seen.first.step ? static_cast<double>(loop.step - seen.first.step) : 0;
    const double seconds = loop.step_at_ns > seen.first.step_at_ns
                               ? static_cast<double>(loop.step_at_ns - seen.first.step_at_ns) * 1e-9
                               : 0;
    std::optional<double> rate;
    if (done > 0 && seconds > 0) {
      rate = done / seconds;
    } else if (loop.last_step_ns > 0) {
      rate = 1e9 / static_cast<double>(loop.last_step_ns);
    }
    if (rate) steps_per_second = std::min(*rate, steps_per_second.value_or(*rate));
    if (done > 0 && seconds > 0 && loop.samples > seen.first.samples) {
      const auto samples = static_cast<double>(loop.samples - seen.first.samples);
      samples_per_second += samples / seconds;
      batch += samples / done;
    }
  }
  events::Event event{"run-summary", events::Severity::kInfo, {}, fmt::format("summary: {} steps", steps)};
  event.fields.Set("steps", static_cast<std::int64_t>(steps));
  event.fields.Set("ranks", static_cast<std::int64_t>(ranks_.size()));
  if (steps_per_second) {
    event.fields.Set("steps_per_second", *steps_per_second);
    event.message += fmt::format(", {:.3g} steps/s", *steps_per_second);
  }
  if (samples_per_second > 0) {
    event.fields.Set("samples_per_second", samples_per_second);
    event.fields.Set("global_batch", std::llround(batch));
    event.message += fmt::format(", {:.4g} samples/s, global batch {}", samples_per_second, std::llround(batch));
  }
  if (static_cast<int>(ranks_.size()) < world_size) {
    event.message += fmt::format(" of {} of {} ranks", ranks_.size(), world_size);
  }
  if (shares.all() > 0) {
    const auto percent = [&](double part) { return Rounded(100 * part / shares.all(), 0.1); };
    event.fields.Set("data_percent", percent(shares.data));
    event.fields.Set("compute_percent", percent(shares.compute));
    event.fields.Set("communication_percent", percent(shares.communication));
    event.fields.Set("checkpoint_percent", percent(shares.checkpoint));
    event.message += fmt::format("; time: data {:.0f} %, compute {:.0f} %, communication {:.0f} %",
                                 percent(shares.data), percent(shares.compute), percent(shares.communication));
    if (shares.checkpoint > 0) event.message += fmt::format(", checkpoints {:.0f} %", percent(shares.checkpoint));
  }
  return event;
}

}  // namespace fulldeck::diagnosis
