// Supervisor: ranks that wait for one that does not come. docs/hangs.md
#include "launcher/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>

#include "base/text.h"
#include "wire/process_identity.h"

namespace fulldeck::launcher {
namespace {

using diagnosis::HangVerdict;
using diagnosis::RankStacks;
using diagnosis::VerdictKind;
using std::chrono::milliseconds;

constexpr std::size_t kFramesOfCulprit = 24;
constexpr std::size_t kFramesOfOthers = 8;
constexpr std::size_t kLinesOfCulprit = 60;
constexpr std::size_t kLinesOfOthers = 16;
// What a collection did to a stopped rank is told to us by the kernel within this.
constexpr milliseconds kEchoOfCollection{500};

bool SameStall(const HangVerdict& a, const HangVerdict& b) {
  return a.awaited.group_id == b.awaited.group_id && a.awaited.sequence == b.awaited.sequence;
}

// Where the main thread is, by functions; empty: not known.
std::string PlaceOf(const RankStacks& rank) {
  const diagnosis::ThreadStack* thread = rank.main_thread();
  return rank.complete() && thread != nullptr ? thread->FunctionKey() : "";
}

}  // namespace

void Supervisor::WatchHangs() {
  hang_alarm_.reset();
  waiting_note_.clear();
  // Ranks that are alone wait for nobody.
  if (group_->start().world_size < 2) return;
  hang_watch_ = std::make_unique<HangWatch>(*group_);
  // On hosts with thousands of ranks the looks are further apart.
  const auto pause = kLookInterval + milliseconds(plan_->ranks.size() / 4);
  hang_timer_ = loop_.After(pause, [this] { LookForHangs(); });
}

void Supervisor::EndHangWatch() {
  loop_.Remove(hang_timer_);
  loop_.Remove(stacks_timer_);
  hang_timer_ = stacks_timer_ = 0;
  stacks_.reset();
  collecting_ = false;
  waiting_note_.clear();
  if (!hang_watch_) return;
  if (const auto& slow = hang_watch_->straggler()) {
    Say(fmt::format("the slowest rank was {}: the others waited for it {:.0f} % of the time",
                    NameOf(group_->ranks()[static_cast<std::size_t>(slow->local_rank)]), slow->share * 100));
  }
  hang_watch_.reset();
}

void Supervisor::LookForHangs() {
  hang_timer_ = 0;
  if (phase_ != Phase::kRunning || !hang_watch_) return;
  const base::TimePoint now = loop_.clock().Now();
  NoticeContinuedRanks();
  const HangVerdict verdict = hang_watch_->Look(now);
  waiting_note_ = diagnosis::InShort(verdict, group_->start().first_rank);
  if (const auto slow = hang_watch_->NewStraggler()) {
    Say(fmt::format("{} is slow: in the last {} steps the others waited for it {:.0f} % of the time",
                    NameOf(group_->ranks()[static_cast<std::size_t>(slow->local_rank)]), slow->after_steps,
                    slow->share * 100));
  }
  if (hang_alarm_ && !IsStillStopped(*hang_alarm_) &&
      (verdict.kind == VerdictKind::kNothing || !SameStall(verdict, *hang_alarm_))) {
    Say(fmt::format("the run moves again, {} after the verdict", Seconds(now - hang_alarm_at_)));
    hang_alarm_.reset();
  }
  if (verdict.alarm() && !hang_alarm_) {
    RaiseHangAlarm(verdict);
  } else if (const auto suspect = hang_watch_->judge().WantsStackOf(); suspect && !collecting_) {
    SampleStackOf(*suspect);
  }
  if (phase_ != Phase::kRunning) return;
  const auto pause = kLookInterval + milliseconds(plan_->ranks.size() / 4);
  hang_timer_ = loop_.After(pause, [this] { LookForHangs(); });
}

// It moves on by some steps when we let it run for its stacks: that is no end of the stall.
bool Supervisor::IsStillStopped(const HangVerdict& verdict) const {
  if (verdict.kind != VerdictKind::kStopped) return false;
  const Rank& culprit = group_->ranks()[static_cast<std::size_t>(verdict.culprit)];
  return culprit.stopped && !culprit.ending;
}

// Somebody may have continued a rank while we did so too, for its stacks, and took the kernel's word for an echo.
void Supervisor::NoticeContinuedRanks() {
  if (collecting_) return;
  for (Rank& rank : group_->ranks()) {
    if (!rank.stopped || rank.ending) continue;
    const auto stat = wire::ReadProcessStat(rank.pid);
    if (!stat || stat->state == 'T' || stat->state == 't') continue;
    group_->StoppedOrContinued(rank, false, loop_.clock().Now());
    Say(fmt::format("{} runs again", NameOf(rank)));
  }
}

std::vector<diagnosis::StackTarget> Supervisor::StackTargets() const {
  std::vector<diagnosis::StackTarget> targets;
  for (const Rank& rank : group_->ranks()) {
    if (rank.ending || rank.pid <= 0) continue;
    diagnosis::StackTarget target;
    target.rank = rank.rank;
    target.process = record_.ranks[static_cast<std::size_t>(rank.local_rank)].process;
    const auto told = group_->board().ReadProcess(rank.local_rank);
    // A wrapper's child is not ours to signal.
    if (told && told->process.pid == target.process.pid && told->process.start_ticks == target.process.start_ticks) {
      target.signal = told->stack_signal;
    }
    target.file = rank.files.stack_path;
    targets.push_back(std::move(target));
  }
  return targets;
}

void Supervisor::CollectStacks(std::vector<diagnosis::StackTarget> targets,
                               std::function<void(const std::vector<RankStacks>&)> then) {
  loop_.Remove(stacks_timer_);
  stacks_timer_ = 0;
  collecting_ = true;
  stacks_.reset();
  stacks_ = std::make_unique<diagnosis::StackCollection>(
      loop_, std::move(targets), diagnosis::StackCollectionOptions(),
      [this, then = std::move(then)](const std::vector<RankStacks>& ranks) {
        collecting_ = false;
        stacks_timer_ = loop_.After(kEchoOfCollection, [this] {
          stacks_timer_ = 0;
          stacks_.reset();
        });
        then(ranks);
      });
}

void Supervisor::SampleStackOf(int local_rank) {
  std::vector<diagnosis::StackTarget> targets = StackTargets();
  const int rank = group_->ranks()[static_cast<std::size_t>(local_rank)].rank;
  std::erase_if(targets, [&](const diagnosis::StackTarget& target) { return target.rank != rank; });
  if (targets.empty()) return;
  CollectStacks(std::move(targets), [this, local_rank](const std::vector<RankStacks>& ranks) {
    if (!hang_watch_ || ranks.empty()) return;
    const std::string place = PlaceOf(ranks.front());
    const std::uint64_t stack = place.empty() ? 0 : std::hash<std::string>()(place) | 1;
    hang_watch_->judge().SawStack(local_rank, stack, loop_.clock().Now());
  });
}

void Supervisor::RaiseHangAlarm(const HangVerdict& verdict) {
  hang_alarm_ = verdict;
  hang_alarm_at_ = loop_.clock().Now();
  std::vector<std::string> names;
  for (const Rank& rank : group_->ranks()) names.push_back(NameOf(rank));
  const int first_rank = group_->start().first_rank;
  for (const std::string& line : diagnosis::InWords(verdict, names, first_rank, plan_->host_name)) Say(line);
  if (verdict.kind == VerdictKind::kElsewhere) return;
  CollectStacks(StackTargets(), [this, verdict](const std::vector<RankStacks>& ranks) {
    SayStacks(verdict, ranks);
    // Not from here: to act is to end the collection that calls us.
    loop_.After(milliseconds(0), [this] { ActOnHang(); });
  });
}

void Supervisor::SayStacks(const HangVerdict& verdict, const std::vector<RankStacks>& ranks) {
  const int first_rank = group_->start().first_rank;
  const auto complete = std::count_if(ranks.begin(), ranks.end(), [](const RankStacks& one) { return one.complete(); });
  const auto saved = diagnosis::SaveStacks(plan_->directory->path(), ranks);
  Say(fmt::format(
      "stacks of {} of {} ranks after {}{}", complete, ranks.size(), Seconds(loop_.clock().Now() - hang_alarm_at_),
      saved ? ", whole in " + base::Printable(*saved) : "; they cannot be saved: " + saved.error().message));
  // Ranks in the same place are shown once.
  std::map<std::string, std::vector<int>> places;
  for (const RankStacks& one : ranks) {
    const std::string place = PlaceOf(one);
    if (!place.empty() && one.rank != first_rank + verdict.culprit) places[place].push_back(one.rank - first_rank);
  }
  const auto show = [&](const RankStacks& one, std::size_t frames, std::size_t most) {
    const std::vector<std::string> lines = one.Lines(frames);
    for (std::size_t i = 0; i < lines.size() && i < most; ++i) Say("  | " + lines[i]);
    if (lines.size() > most) Say(fmt::format("  | … {} lines more in the file", lines.size() - most));
  };
  for (const RankStacks& one : ranks) {
    if (one.rank == first_rank + verdict.culprit) show(one, kFramesOfCulprit, kLinesOfCulprit);
  }
  for (const RankStacks& one : ranks) {
    if (one.rank == first_rank + verdict.culprit) continue;
    const auto same = places.find(PlaceOf(one));
    if (same != places.end() && same->second.front() != one.rank - first_rank) continue;
    show(one, kFramesOfOthers, kLinesOfOthers);
    if (same != places.end() && same->second.size() > 1) {
      const std::vector<int> others(same->second.begin() + 1, same->second.end());
      Say(fmt::format("  | rank{} {}: in the same functions as rank {}", others.size() == 1 ? "" : "s",
                      diagnosis::RankList(others, first_rank), one.rank));
    }
  }
}

void Supervisor::ActOnHang() {
  if (phase_ != Phase::kRunning) return;
  switch (plan_->flags.on_hang) {
    case job::OnHang::kReport:
      Say("the run is left as it is (--on-hang report); fulldeck stop ends it, --on-hang restart or fail would act");
      return;
    case job::OnHang::kRestart:
      Say("stopping the ranks, as --on-hang restart asks");
      break;
    case job::OnHang::kFail:
      Say("error: stopping the run, as --on-hang fail asks");
      break;
  }
  hung_ = true;
  BeginStop(SIGTERM, plan_->flags.grace);
  CheckAllGone();
}

void Supervisor::SayDifferentCalls() {
  if (!hang_watch_ || !group_ || hang_alarm_) return;
  const auto verdict = hang_watch_->LookForDifferentCalls(loop_.clock().Now());
  std::vector<std::string> names;
  for (const Rank& rank : group_->ranks()) names.push_back(NameOf(rank));
  if (!verdict) {
    // The ranks may have left their groups already; what the group said stays.
    for (const Rank& rank : group_->ranks()) {
      const auto error = group_->board().ReadError(rank.local_rank);
      if (!error || error->text.find("made different calls") == std::string::npos) continue;
      return Say("DESYNC: " + error->text.substr(0, error->text.find('\n')));
    }
    return;
  }
  for (const std::string& line : diagnosis::InWords(*verdict, names, group_->start().first_rank, plan_->host_name)) {
    Say(line);
  }
}

std::string Supervisor::LastCallInWords(const Rank& rank) const {
  const auto call = LatestCall(group_->board(), rank.local_rank);
  if (!call) return "";
  return fmt::format("; its last call: {}{}", diagnosis::InWords(*call),
                     call->group.empty() ? "" : " of group " + call->group);
}

}  // namespace fulldeck::launcher
