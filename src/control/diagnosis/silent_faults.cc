#include "diagnosis/silent_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fulldeck::diagnosis {
namespace {

constexpr std::size_t kFingerprintsKept = 8;
constexpr std::size_t kMaxNamed = 8;
// A single step without a reduction may be intentional; two consecutive ones are not.
constexpr std::uint64_t kUnreducedSteps = 2;

// One rank trains alone: at least this many steps in this much time in which no other rank made a step.
constexpr std::uint64_t kAloneSteps = 10;
constexpr std::chrono::seconds kAloneTime{5};
constexpr std::uint64_t kAloneStepsAtTheEnd = 3;

// Others only wait: several consecutive windows of this size, so that a validation or a checkpoint of one rank does not
// count.
constexpr std::uint64_t kWindowSteps = 20;
constexpr std::chrono::seconds kWindowTime{5};
constexpr int kWindows = 3;
constexpr double kWaits = 0.8;  // fraction of the time
constexpr double kWorks = 0.2;

std::uint64_t StepOf(const RankSnapshot& rank) {
  return rank.loop ? rank.loop->step : 0;
}

bool HasStepped(const RankSnapshot& rank) {
  return rank.loop && rank.loop->step_at_ns != 0;
}

}  // namespace

std::vector<RankSnapshot> TakeSnapshots(const wire::RankBoard& board, base::TimePoint now) {
  std::vector<RankSnapshot> ranks;
  for (int local_rank = 0; local_rank < board.run().local_ranks; ++local_rank) {
    RankSnapshot snapshot;
    snapshot.rank = board.run().first_rank + local_rank;
    snapshot.loop = board.ReadLoop(local_rank);
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      const auto group = board.ReadCollective(local_rank, slot);
      if (!group) continue;
      snapshot.waited_ns += group->waited_ns;
      if (group->in_flight()) {
        snapshot.waited_ns +=
            static_cast<std::uint64_t>(wire::Age(group->since_ns, now).value_or(base::Duration(0)).count());
      }
    }
    ranks.push_back(std::move(snapshot));
  }
  return ranks;
}

std::vector<events::Event> SilentFaults::Update(const std::vector<RankSnapshot>& ranks, base::TimePoint now) {
  Events found;
  if (ranks.empty()) return found;
  SameOrder(ranks, found);
  NothingReduced(ranks, found);
  if (ranks.size() < 2) return found;
  SameBatches(ranks, found);
  DifferentParameters(ranks, found);
  SameFile(ranks, found);
  OneAlone(ranks, now, found);
  OthersWait(ranks, now, found);
  return found;
}

std::vector<events::Event> SilentFaults::CheckAtEnd(const std::vector<RankSnapshot>& ranks, base::TimePoint now) {
  Events found = Update(ranks, now);
  const auto stepped = std::count_if(ranks.begin(), ranks.end(), HasStepped);
  const auto worker = std::find_if(ranks.begin(), ranks.end(), HasStepped);
  if (ranks.size() < 2 || stepped != 1 || StepOf(*worker) < kAloneStepsAtTheEnd || !Name("J5")) return found;
  found.push_back(Found(
      "J5", ranks, {static_cast<std::size_t>(worker - ranks.begin())},
      fmt::format(
          "only rank {} trained: it made {} steps, and {} made none. Let every rank run the training loop, on its own "
          "part of the data; what one rank has to do alone (files, logs) comes after that",
          worker->rank, StepOf(*worker), ranks.size() == 2 ? "the other rank" : "the other ranks")));
  return found;
}

bool SilentFaults::Name(const char* row) {
  return named_.insert(row).second;
}

events::Event SilentFaults::Found(const char* code, const std::vector<RankSnapshot>& ranks,
                                  const std::set<std::size_t>& which, const std::string& message) const {
  std::vector<std::int64_t> numbers;
  for (const std::size_t index : which) numbers.push_back(ranks[index].rank);
  return {"silent-error",
          events::Severity::kWarning,
          {{"code", std::string(code)}, {"ranks", numbers}},
          fmt::format("{}: {}", code, message)};
}

std::string SilentFaults::Whom(const std::vector<RankSnapshot>& ranks, const std::set<std::size_t>& which) const {
  const std::string here = static_cast<int>(ranks.size()) < world_size_ ? " of this host" : "";
  if (which.size() == ranks.size() && ranks.size() == 2) return "both ranks" + here;
  if (which.size() == ranks.size() && ranks.size() > 2) return fmt::format("all {} ranks{}", ranks.size(), here);
  std::string text = which.size() == 1 ? "rank " : "ranks ";
  std::size_t listed = 0;
  for (const std::size_t index : which) {
    if (listed == kMaxNamed) return text + fmt::format(" and {} more", which.size() - listed);
    if (listed > 0) text += listed + 1 == which.size() ? " and " : ", ";
    text += std::to_string(ranks[index].rank);
    ++listed;
  }
  return text;
}

// ---- J1

void SilentFaults::SameBatches(const std::vector<RankSnapshot>& ranks, Events& found) {
  std::map<std::uint64_t, std::set<std::size_t>> by_batches;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].loop || !ranks[i].loop->first_batches) return;
    by_batches[*ranks[i].loop->first_batches].insert(i);
  }
  const auto most = std::max_element(by_batches.begin(), by_batches.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most->second.size() < 2 || !Name("J1")) return;
  found.push_back(
      Found("J1", ranks, most->second,
            fmt::format(
                "{} trained their first 3 steps on the same batches: the data is not shared out. Give the DataLoader a "
                "DistributedSampler, with the run's number of ranks and this rank's number",
                Whom(ranks, most->second))));
}

// ---- J2

void SilentFaults::SameOrder(const std::vector<RankSnapshot>& ranks, Events& found) {
  std::set<std::size_t> which;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].loop && ranks[i].loop->repeated_orders > 0) which.insert(i);
  }
  if (which.empty() || !Name("J2")) return;
  found.push_back(Found(
      "J2", ranks, which,
      fmt::format("the sampler of {} gives the same order in every epoch: call sampler.set_epoch(epoch) before each",
                  Whom(ranks, which))));
}

// ---- J3

void SilentFaults::DifferentParameters(const std::vector<RankSnapshot>& ranks, Events& found) {
  parameters_.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].loop || !ranks[i].loop->parameters) continue;
    parameters_[i][ranks[i].loop->parameters->step] = ranks[i].loop->parameters->value;
    if (parameters_[i].size() > kFingerprintsKept) parameters_[i].erase(parameters_[i].begin());
  }
  for (const auto& known : parameters_[0]) {
    std::map<std::uint64_t, std::set<std::size_t>> by_value;
    std::size_t reported = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto same_step = parameters_[i].find(known.first);
      if (same_step == parameters_[i].end()) break;
      by_value[same_step->second].insert(i);
      ++reported;
    }
    if (reported < ranks.size() || by_value.size() < 2) continue;
    if (!Name("J3")) return;
    const auto most = std::max_element(by_value.begin(), by_value.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::set<std::size_t> which;
    for (const auto& value : by_value) {
      if (value.first != most->first || most->second.size() == 1)
        which.insert(value.second.begin(), value.second.end());
    }
    found.push_back(Found(
        "J3", ranks, which,
        fmt::format(
            "the parameters differ between the ranks after step {}: {}. Was the model replaced, or changed on some "
            "ranks, after it was wrapped? Change it before the wrap, or on all ranks alike",
            known.first, Whom(ranks, which))));
    return;
  }
}

// ---- J4

void SilentFaults::NothingReduced(const std::vector<RankSnapshot>& ranks, Events& found) {
  std::set<std::size_t> which;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].loop && ranks[i].loop->unreduced_steps >= kUnreducedSteps) which.insert(i);
  }
  if (which.empty() || !Name("J4")) return;
  const wire::Loop& first = *ranks[*which.begin()].loop;
  found.push_back(Found(
      "J4", ranks, which,
      fmt::format(
          "the optimizer of {} steps without a forward through DistributedDataParallel that reduces gradients ({} "
          "steps, {} reductions): each rank trains on its own. Call the wrapped model, not .module(x), and leave "
          "no_sync() "
          "before the last backward of a step",
          Whom(ranks, which), first.step, first.reductions)));
}

// ---- G5

void SilentFaults::SameFile(const std::vector<RankSnapshot>& ranks, Events& found) {
  std::map<std::uint64_t, std::set<std::size_t>> by_file;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].loop && ranks[i].loop->saved_file != 0) by_file[ranks[i].loop->saved_file].insert(i);
  }
  for (const auto& file : by_file) {
    if (file.second.size() < 2) continue;
    if (!Name("G5")) return;
    found.push_back(Found(
        "G5", ranks, file.second,
        fmt::format(
            "{} saved to the same file: each destroys what another wrote. Save on rank 0 alone (if dist.get_rank() == "
            "0), or to a file for each rank",
            Whom(ranks, file.second))));
    return;
  }
}

// ---- J5

void SilentFaults::OneAlone(const std::vector<RankSnapshot>& ranks, base::TimePoint now, Events& found) {
  last_steps_.resize(ranks.size(), 0);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint64_t step = StepOf(ranks[i]);
    const std::uint64_t before = std::exchange(last_steps_[i], step);
    if (step <= before) continue;
    if (!alone_) {
      alone_ = Alone{i, before, now};
    } else if (alone_->index != i) {
      // A step of any other rank restarts the count with the current steps.
      alone_.reset();
      for (std::size_t rest = i + 1; rest < ranks.size(); ++rest) last_steps_[rest] = StepOf(ranks[rest]);
      return;
    }
  }
  if (!alone_ || now - alone_->since < kAloneTime) return;
  const std::size_t index = alone_->index;
  std::uint64_t furthest = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != index) furthest = std::max(furthest, last_steps_[i]);
  }
  // A slow rank that repeats steps that the others have already made trains the same as they did.
  if (last_steps_[index] < std::max(alone_->from_step, furthest) + kAloneSteps || !Name("J5")) return;
  found.push_back(Found(
      "J5", ranks, {index},
      fmt::format("only rank {} trains: it is at step {}, and {} at step {} since {} steps. Let every rank run the "
                  "training loop, "
                  "on its own part of the data; what one rank has to do alone (files, logs) comes after that",
                  ranks[index].rank, last_steps_[index],
                  ranks.size() == 2 ? "the other rank stands" : "the others stand, the furthest", furthest,
                  last_steps_[index] - alone_->from_step)));
}

SilentFaults::Window SilentFaults::WindowFrom(const std::vector<RankSnapshot>& ranks, base::TimePoint now) const {
  Window window;
  window.since = now;
  for (const RankSnapshot& rank : ranks) {
    window.steps.push_back(StepOf(rank));
    window.reported_ns.push_back(rank.loop ? rank.loop->communication_ns : 0);
    window.waited_ns.push_back(rank.waited_ns);
  }
  return window;
}

void SilentFaults::OthersWait(const std::vector<RankSnapshot>& ranks, base::TimePoint now, Events& found) {
  if (!std::all_of(ranks.begin(), ranks.end(), HasStepped)) return;
  if (!window_) {
    window_ = WindowFrom(ranks, now);
    return;
  }
  if (now - window_->since < kWindowTime) return;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (StepOf(ranks[i]) < window_->steps[i] + kWindowSteps) return;
  }
  const Window before = *window_;
  window_ = WindowFrom(ranks, now);
  const double time = static_cast<double>((now - before.since).count());
  // Prefer the loop's own measurement; a group's also includes communication that overlaps with computing.
  const bool reported = window_->reported_ns != before.reported_ns;
  std::set<std::size_t> working;
  std::size_t waiting = 0;
  double least = 1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double waited =
        reported ? static_cast<double>(window_->reported_ns[i]) - static_cast<double>(before.reported_ns[i])
                 : static_cast<double>(window_->waited_ns[i]) - static_cast<double>(before.waited_ns[i]);
    if (waited < kWorks * time) {
      working.insert(i);
    } else if (waited > kWaits * time) {
      ++waiting;
      least = std::min(least, waited / time);
    }
  }
  if (working.size() != 1 || waiting + 1 != ranks.size()) {
    worker_.reset();
    return;
  }
  windows_ = worker_ == *working.begin() ? windows_ + 1 : 1;
  worker_ = *working.begin();
  if (windows_ < kWindows || !Name("J5")) return;
  found.push_back(Found(
      "J5", ranks, {*worker_},
      fmt::format(
          "only rank {} works: the others wait for it at least {:.0f} % of the time. Is the data shared out evenly, "
          "and does every rank have the same work? Or its card or its processors are slow",
          ranks[*worker_].rank, least * 100)));
}

}  // namespace fulldeck::diagnosis
