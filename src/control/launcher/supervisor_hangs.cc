// Supervisor: ranks that wait for one that does not arrive. See docs/hangs.md.
#include "launcher/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>

#include "base/clock.h"
#include "base/files/system_root.h"
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
// The kernel reports what a collection did to a stopped rank within this time.
constexpr milliseconds kEchoOfCollection{500};
// A sampled place can be reused for the report for this long.
constexpr milliseconds kPlaceIsFresh{3'000};
// A rank whose collective timed out takes up to this long to exit.
constexpr milliseconds kMayBeFailing{5'000};
// How long ranks that lost a peer have to report which collective they were in.
constexpr milliseconds kCallsTimeout{3'000};
// A rank has recovered from a failure that it reported longer ago than this.
constexpr milliseconds kFailureIsFresh{10'000};

bool SameStall(const HangVerdict& a, const HangVerdict& b) {
  return a.awaited.group_id == b.awaited.group_id && a.awaited.sequence == b.awaited.sequence;
}

// Where the main thread is, by functions; empty: unknown.
std::string PlaceOf(const RankStacks& rank) {
  const diagnosis::ThreadStack* thread = rank.main_thread();
  return rank.complete() && thread != nullptr ? thread->FunctionKey() : "";
}

// Whether its interpreter resumes a wait that a signal interrupted.
bool IsPython(pid_t pid) {
  const std::string program = base::SystemRoot().ReadLink("/proc/" + std::to_string(pid) + "/exe").value_or("");
  return program.substr(program.rfind('/') + 1).starts_with("python");
}

}  // namespace

diagnosis::HangContext Supervisor::HangContextNow() const {
  diagnosis::HangContext context{.names = {}, .first_rank = group_->start().first_rank, .node = plan_->host_name};
  for (const Rank& rank : group_->ranks()) context.names.push_back(NameOf(rank));
  return context;
}

void Supervisor::WatchHangs() {
  hang_alarm_.reset();
  alarm_quiet_since_.reset();
  last_wait_.reset();
  calls_awaited_since_.reset();
  waiting_.reset();
  sampled_place_ = {};
  waiting_text_.clear();
  // A single rank waits for no other.
  if (group_->start().world_size < 2) return;
  hang_watch_ = std::make_unique<HangWatch>(*group_, [this](int local_rank) -> std::optional<base::TimePoint> {
    const auto card = plan_->ranks[static_cast<std::size_t>(local_rank)].placement.card;
    return card && card_usage_ ? card_usage_->Worked(static_cast<std::size_t>(*card)) : std::nullopt;
  });
  // With thousands of ranks on a node, the polls are further apart.
  const auto pause = kPollInterval + milliseconds(plan_->ranks.size() / 4);
  hang_timer_ = loop_.After(pause, [this] { CheckForHangs(); });
}

void Supervisor::EndHangWatch() {
  loop_.Remove(hang_timer_);
  loop_.Remove(stacks_timer_);
  hang_timer_ = stacks_timer_ = 0;
  stacks_.reset();
  collecting_ = false;
  waiting_text_.clear();
  if (!hang_watch_) return;
  if (const auto& slow = hang_watch_->straggler()) {
    const Rank& rank = group_->ranks()[static_cast<std::size_t>(slow->local_rank)];
    Report({"slowest-rank",
            events::Severity::kInfo,
            {{"rank", std::int64_t{rank.rank}}, {"share", slow->share}},
            fmt::format("the slowest rank was {}: the others waited for it {:.0f} % of the time", NameOf(rank),
                        slow->share * 100)});
  }
  hang_watch_.reset();
}

void Supervisor::CheckForHangs() {
  hang_timer_ = 0;
  if (phase_ != Phase::kRunning || !hang_watch_) return;
  const base::TimePoint now = loop_.clock().Now();
  NoticeContinuedRanks();
  const HangVerdict verdict = hang_watch_->Poll(now);
  waiting_text_ = diagnosis::DescribeBriefly(verdict, group_->start().first_rank);
  if (const auto slow = hang_watch_->NewStraggler()) {
    const Rank& rank = group_->ranks()[static_cast<std::size_t>(slow->local_rank)];
    Report({"straggler",
            events::Severity::kInfo,
            {{"rank", std::int64_t{rank.rank}},
             {"share", slow->share},
             {"steps", static_cast<std::int64_t>(slow->after_steps)}},
            fmt::format("{} is slow: in the last {} steps the others waited for it {:.0f} % of the time", NameOf(rank),
                        slow->after_steps, slow->share * 100)});
  }
  const bool moves = verdict.kind == VerdictKind::kNothing;
  RememberWait(verdict);
  if (hang_alarm_ && IsOver(*hang_alarm_, verdict)) {
    const double after = std::chrono::duration<double>(now - hang_alarm_at_).count();
    Report({"run-moves-again",
            events::Severity::kInfo,
            {{"awaited_rank",
              std::int64_t{hang_alarm_->culprit < 0 ? -1 : group_->start().first_rank + hang_alarm_->culprit}},
             {"call_number", static_cast<std::int64_t>(hang_alarm_->awaited.sequence)},
             {"seconds", after}},
            fmt::format("the run moves again, {:.1f} s after the verdict", after)});
    hang_alarm_.reset();
    alarm_quiet_since_.reset();
  }
  if (waiting_ && (moves || !SameStall(verdict, *waiting_))) waiting_.reset();
  if (verdict.alarm() && !hang_alarm_) {
    RaiseHangAlarm(verdict);
  } else if (!hang_alarm_) {
    if (!moves && !verdict.alarm() && !waiting_ && !collecting_) ReportWaiting(verdict);
    const auto suspect = hang_watch_->judge().WantsStackOf();
    if (suspect && !collecting_) SampleStackOf(*suspect, [](const std::string&) {});
  }
  if (phase_ != Phase::kRunning) return;
  const auto pause = kPollInterval + milliseconds(plan_->ranks.size() / 4);
  hang_timer_ = loop_.After(pause, [this] { CheckForHangs(); });
}

// A failing rank changes what the others wait for, so only waits before the failure are remembered.
void Supervisor::RememberWait(const HangVerdict& verdict) {
  const bool waits = verdict.kind == VerdictKind::kWaiting || verdict.kind == VerdictKind::kHang ||
                     verdict.kind == VerdictKind::kStopped;
  if (!waits || verdict.culprit < 0) return;
  const base::TimePoint now = loop_.clock().Now();
  for (const Rank& rank : group_->ranks()) {
    const auto error = group_->board().ReadError(rank.local_rank);
    const auto age = error ? wire::Age(error->at_ns, now) : std::nullopt;
    if ((age && *age < kFailureIsFresh) || (rank.exit_status && !rank.exit_status->exit_status.ok())) return;
  }
  last_wait_ =
      diagnosis::LastWait{group_->start().first_rank + verdict.culprit, verdict.waiting, verdict.awaited.group_id,
                          verdict.awaited.sequence, static_cast<std::uint64_t>(now.time_since_epoch().count())};
}

// Whether the run makes progress again. If a timeout ended the collective, no rank waits any more although the awaited
// rank has not arrived; the alarm is then over only if no rank fails because of it.
bool Supervisor::IsOver(const HangVerdict& alarm, const HangVerdict& now_seen) {
  if (now_seen.kind != VerdictKind::kNothing) {
    alarm_quiet_since_.reset();
    return !IsStillStopped(alarm) && !SameStall(now_seen, alarm);
  }
  const std::vector<Rank>& ranks = group_->ranks();
  const bool failed = std::any_of(ranks.begin(), ranks.end(), [](const Rank& one) {
    return one.exit_status && !one.exit_status->exit_status.ok();
  });
  if (IsStillStopped(alarm) || failed) return false;
  const base::TimePoint now = loop_.clock().Now();
  if (!alarm_quiet_since_) alarm_quiet_since_ = now;
  if (alarm.culprit < 0 || now - *alarm_quiet_since_ >= kMayBeFailing) return true;
  for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
    const auto call = group_->board().ReadCollective(alarm.culprit, slot);
    if (call && call->group == alarm.awaited.group_id) return call->sequence >= alarm.awaited.sequence;
  }
  return false;
}

// A stopped rank advances by some steps while it is continued for its stacks; that does not end the stall.
bool Supervisor::IsStillStopped(const HangVerdict& verdict) const {
  if (verdict.kind != VerdictKind::kStopped) return false;
  const Rank& culprit = group_->ranks()[static_cast<std::size_t>(verdict.culprit)];
  return culprit.stopped && !culprit.exit_status;
}

// A user may continue a rank while a collection has continued it, too; the kernel's report was then taken for our own.
void Supervisor::NoticeContinuedRanks() {
  // A rank that a collection has just stopped again stops only when it gets a CPU.
  if (stacks_) return;
  for (Rank& rank : group_->ranks()) {
    if (!rank.stopped || rank.exit_status) continue;
    const auto stat = wire::ReadProcessStat(rank.pid);
    if (!stat || stat->state == 'T' || stat->state == 't') continue;
    group_->StoppedOrContinued(rank, false, loop_.clock().Now());
    Report({"rank-continued",
            events::Severity::kInfo,
            {{"rank", std::int64_t{rank.rank}}, {"pid", std::int64_t{rank.pid}}},
            NameOf(rank) + " runs again"});
  }
}

std::vector<diagnosis::StackTarget> Supervisor::StackTargets() const {
  std::vector<diagnosis::StackTarget> targets;
  for (const Rank& rank : group_->ranks()) {
    if (rank.exit_status || rank.pid <= 0) continue;
    diagnosis::StackTarget target;
    target.rank = rank.rank;
    target.process = record_.ranks[static_cast<std::size_t>(rank.local_rank)].process;
    const auto reported = group_->board().ReadProcess(rank.local_rank);
    // Do not signal a process that is not the rank itself, such as the child of a wrapper.
    if (reported && reported->process.pid == target.process.pid &&
        reported->process.start_ticks == target.process.start_ticks) {
      target.signal = reported->stack_signal;
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

void Supervisor::SampleStackOf(int local_rank, std::function<void(const std::string& place)> then) {
  std::vector<diagnosis::StackTarget> targets = StackTargets();
  const int rank = group_->ranks()[static_cast<std::size_t>(local_rank)].rank;
  std::erase_if(targets, [&](const diagnosis::StackTarget& target) { return target.rank != rank; });
  if (targets.empty()) return;
  hang_watch_->judge().OnStackRequested(local_rank, loop_.clock().Now());
  CollectStacks(std::move(targets), [this, local_rank, then = std::move(then)](const std::vector<RankStacks>& ranks) {
    if (!hang_watch_ || ranks.empty()) return;
    const std::string place = PlaceOf(ranks.front());
    const std::uint64_t stack = place.empty() ? 0 : std::hash<std::string>()(place) | 1;
    const base::TimePoint now = loop_.clock().Now();
    hang_watch_->judge().SawStack(local_rank, stack, now);
    sampled_place_ = {local_rank, now, ranks.front().MainPlace()};
    then(sampled_place_.place);
  });
}

// Reports each stall once, with the place of the awaited rank.
void Supervisor::ReportWaiting(const HangVerdict& verdict) {
  waiting_ = verdict;
  const auto index = static_cast<std::size_t>(std::max(0, verdict.culprit));
  const Rank& awaited = group_->ranks()[index];
  // A stopped rank is not continued for this, and a rank that has exited has no stack. The rank may be healthy: if the
  // signal for its stack would end its wait, it is not sent.
  if (verdict.culprit < 0 || awaited.stopped || awaited.exit_status ||
      (diagnosis::EndsAtASignal(verdict.wait) && !IsPython(awaited.pid))) {
    return Report(diagnosis::WaitingEvent(verdict, HangContextNow(), ""));
  }
  if (sampled_place_.local_rank == verdict.culprit && loop_.clock().Now() - sampled_place_.at < kPlaceIsFresh) {
    return Report(diagnosis::WaitingEvent(verdict, HangContextNow(), sampled_place_.place));
  }
  SampleStackOf(verdict.culprit, [this, verdict](const std::string& place) {
    if (!waiting_ || !SameStall(*waiting_, verdict) || hang_alarm_) return;  // over before it could be reported
    Report(diagnosis::WaitingEvent(verdict, HangContextNow(), place));
  });
}

void Supervisor::RaiseHangAlarm(const HangVerdict& verdict) {
  hang_alarm_ = verdict;
  hang_alarm_at_ = loop_.clock().Now();
  Report(diagnosis::HangEvent(verdict, HangContextNow()));
  CollectStacks(StackTargets(), [this, verdict](const std::vector<RankStacks>& ranks) {
    LogStacks(verdict, ranks);
    // Deferred: acting on the hang destroys the collection that is calling.
    loop_.After(milliseconds(0), [this] { ActOnHang(); });
  });
}

void Supervisor::LogStacks(const HangVerdict& verdict, const std::vector<RankStacks>& ranks) {
  const int first_rank = group_->start().first_rank;
  const auto complete = std::count_if(ranks.begin(), ranks.end(), [](const RankStacks& one) { return one.complete(); });
  const auto saved = diagnosis::SaveStacks(plan_->directory->path(), ranks);
  const base::Duration took = loop_.clock().Now() - hang_alarm_at_;
  Report({"stacks",
          events::Severity::kInfo,
          {{"complete", std::int64_t{complete}},
           {"ranks", static_cast<std::int64_t>(ranks.size())},
           {"seconds", std::chrono::duration<double>(took).count()},
           {"file", saved ? *saved : std::string()}},
          fmt::format(
              "stacks of {} of {} ranks after {}{}", complete, ranks.size(), base::FormatSeconds(took),
              saved ? ", whole in " + base::Printable(*saved) : "; they cannot be saved: " + saved.error().message)});
  // Ranks at the same place are shown once.
  std::map<std::string, std::vector<int>> places;
  for (const RankStacks& one : ranks) {
    const std::string place = PlaceOf(one);
    if (!place.empty() && one.rank != first_rank + verdict.culprit) places[place].push_back(one.rank - first_rank);
  }
  const auto show = [&](const RankStacks& one, std::size_t frames, std::size_t most) {
    const std::vector<std::string> lines = one.Lines(frames);
    for (std::size_t i = 0; i < lines.size() && i < most; ++i) LogLine("  | " + lines[i]);
    if (lines.size() > most) LogLine(fmt::format("  | … {} lines more in the file", lines.size() - most));
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
      LogLine(fmt::format("  | rank{} {}: in the same functions as rank {}", others.size() == 1 ? "" : "s",
                          base::FormatRanges(others, first_rank), one.rank));
    }
  }
}

void Supervisor::ActOnHang() {
  if (phase_ != Phase::kRunning) return;
  const auto report = [&](const char* action, events::Severity severity, const char* message) {
    Report({"hang-action", severity, {{"action", std::string(action)}}, message});
  };
  switch (plan_->flags.on_hang) {
    case job::OnHang::kReport:
      report("report", events::Severity::kInfo,
             "the run is left as it is (--on-hang report); fulldeck stop ends it, --on-hang restart or fail would act");
      return;
    case job::OnHang::kRestart:
      report("restart", events::Severity::kInfo, "stopping the ranks, as --on-hang restart asks");
      break;
    case job::OnHang::kFail:
      report("fail", events::Severity::kError, "stopping the run, as --on-hang fail asks");
      break;
  }
  hung_ = true;
  BeginStop(SIGTERM, plan_->flags.grace);
  CheckAllGone();
}

bool Supervisor::SomeMayReportCalls() {
  const std::vector<Rank>& ranks = group_->ranks();
  if (!hang_watch_ || std::none_of(ranks.begin(), ranks.end(), WasSentTooMuch)) return false;
  const base::TimePoint now = loop_.clock().Now();
  if (!calls_awaited_since_) calls_awaited_since_ = now;
  if (now - *calls_awaited_since_ >= kCallsTimeout) return false;
  return std::any_of(ranks.begin(), ranks.end(), [&](const Rank& rank) {
    if (rank.exit_status || rank.stopped || group_->board().ReadError(rank.local_rank)) return false;
    const auto call = LatestCall(group_->board(), rank.local_rank);
    return call && (call->operation == 0 || call->operation == FULLDECK_BOARD_OTHER_OPERATION ||
                    call->operation == FULLDECK_BOARD_MEETING);
  });
}

void Supervisor::ReportDesync() {
  if (!hang_watch_ || !group_ || hang_alarm_) return;
  const auto verdict = hang_watch_->FindDesync(loop_.clock().Now());
  std::vector<std::string> names;
  for (const Rank& rank : group_->ranks()) names.push_back(NameOf(rank));
  desync_ = verdict;
  if (!verdict) {
    // The ranks may have left their groups already; the error that the group reported remains on the board.
    for (const Rank& rank : group_->ranks()) {
      const auto error = group_->board().ReadError(rank.local_rank);
      if (!error || error->code != wire::FailureCode::kDifferentCalls) continue;
      return Report({"desync",
                     events::Severity::kWarning,
                     {{"awaited_rank", std::int64_t{error->culprit}}},
                     "DESYNC: " + error->text.substr(0, error->text.find('\n'))});
    }
    return;
  }
  events::Event event = diagnosis::HangEvent(*verdict, {names, group_->start().first_rank, plan_->host_name});
  event.id = "desync";
  Report(event);
}

std::string Supervisor::DescribeLastCall(const Rank& rank) const {
  const auto call = LatestCall(group_->board(), rank.local_rank);
  if (!call) return "";
  return fmt::format("; its last call: {}{}", diagnosis::Describe(*call),
                     call->group.empty() ? "" : " of group " + call->group);
}

}  // namespace fulldeck::launcher
