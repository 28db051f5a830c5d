// Supervisor: watches whether every card works for its rank, and gives the verdict (card_usage.h).
#include "launcher/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/files/system_root.h"
#include "base/text.h"
#include "launcher/process_tree.h"
#include "wire/variables.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;

// Limit for a last reading after the ranks have ended; a vendor library may hang.
constexpr milliseconds kLastReadingTimeout{1'000};
constexpr int kDeepestTree = 64;
// Intervals with work before a running training is reported as busy; a burst at its start must not be.
constexpr int kConvincing = 10;

}  // namespace

void Supervisor::WatchCards() {
  card_usage_.reset();
  rank_of_process_.clear();
  last_reading_ = LastReading::kNotRequested;
  all_cards_worked_ = false;
  if (plan_->flags.idle_card == job::IdleCardPolicy::kOff || !plan_->ranks.front().card) return;
  std::vector<device::Card> cards;
  std::vector<diagnosis::UsedCard> used;
  card_ranks_.clear();
  for (const Rank& rank : group_->ranks()) {
    const PlannedRank& planned = plan_->ranks[static_cast<std::size_t>(rank.local_rank)];
    const auto position = static_cast<std::size_t>(*planned.placement.card);
    if (position >= cards.size()) {
      cards.push_back(*planned.card);
      used.push_back({device::NameOf(*planned.card), {}});
      card_ranks_.emplace_back();
    }
    used[position].ranks.push_back(rank.rank);
    card_ranks_[position].push_back(rank.local_rank);
  }
  idle_reported_.assign(cards.size(), false);
  idle_later_reported_.assign(cards.size(), false);
  card_usage_.emplace(std::move(used), plan_->flags.idle_card_after);
  CardWatchEvents events;
  events.reading = [this](const diagnosis::CardReading& reading) {
    if (!card_usage_ || phase_ != Phase::kRunning) return;
    card_usage_->Observe(reading, [this](int pid, std::uint64_t ticks) { return RankOfProcess(pid, ticks); });
  };
  events.round = [this](bool requested) {
    if (requested && last_reading_ == LastReading::kRequested) {
      last_reading_ = LastReading::kDone;
      loop_.After(milliseconds(0), [this] { CheckAllGone(); });
    } else if (card_usage_ && phase_ == Phase::kRunning && group_->alive() > 0) {
      OnCardRound();
    }
  };
  auto watch = CardWatch::Start(
      loop_, cards, plan_->environment, [this](std::size_t card) { return ProgressOn(card_ranks_[card]); },
      std::move(events));
  if (!watch) return Report(diagnosis::CardWatchFailedEvent(watch.error().message));
  card_watch_ = std::move(*watch);
}

// Runs in the child process that reads the cards.
diagnosis::CardProgress Supervisor::ProgressOn(const std::vector<int>& local_ranks) const {
  diagnosis::CardProgress progress;
  progress.model_on_cpu = true;
  const wire::RankBoard& board = group_->board();
  for (const int local_rank : local_ranks) {
    const auto process = board.ReadProcess(local_rank);
    progress.probes =
        progress.probes || (process && (process->loaded & (FULLDECK_BOARD_HOOK | FULLDECK_BOARD_RUNTIME)) != 0);
    progress.probed_ns = std::max(progress.probed_ns, board.Probed(local_rank));
    const auto device = board.ReadObservation(local_rank, FULLDECK_BOARD_CHECK_DEVICE);
    progress.model_on_cpu = progress.model_on_cpu && device && device->state == 1;
    const auto loop = board.ReadLoop(local_rank);
    if (loop && loop->step_at_ns != 0) {
      progress.stepped = true;
      progress.steps += loop->step;
    }
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      const auto group = board.ReadCollective(local_rank, slot);
      if (group && group->operation != 0 && group->operation != FULLDECK_BOARD_MEETING) {
        progress.collectives += group->completed;
      }
    }
  }
  return progress;
}

// A process belongs to the rank that it descends from. A process that left its rank's tree (setsid and a second fork)
// is reparented to this process and assigned by its initial environment. A process that has exited is known if it was
// seen before.
std::optional<int> Supervisor::RankOfProcess(int pid, std::uint64_t start_ticks) {
  for (const job::RegisteredRank& rank : record_.ranks) {
    if (rank.process.pid != pid) continue;
    if (start_ticks != 0 && rank.process.start_ticks != 0 && start_ticks != rank.process.start_ticks) continue;
    return group_->start().first_rank + rank.local_rank;
  }
  const auto stat = wire::ReadProcessStat(pid);
  const bool lives = stat && (start_ticks == 0 || stat->start_ticks == start_ticks);
  const std::pair key{pid, lives ? stat->start_ticks : start_ticks};
  if (const auto known = rank_of_process_.find(key); known != rank_of_process_.end()) return known->second;
  if (!lives) return std::nullopt;
  const auto rank_with = [&](int rank_pid) -> std::optional<int> {
    for (const job::RegisteredRank& rank : record_.ranks) {
      if (rank.process.pid == rank_pid) return group_->start().first_rank + rank.local_rank;
    }
    return std::nullopt;
  };
  std::optional<int> found;
  int ancestor = stat->parent;
  for (int depth = 0; depth < kDeepestTree && ancestor > 1; ++depth) {
    found = rank_with(ancestor);
    if (found) break;
    if (ancestor == getpid()) {
      const auto environment = base::SystemRoot().ReadFile(fmt::format("/proc/{}/environ", pid));
      const std::string variable = std::string(wire::kRankPidVariable) + "=";
      for (const std::string_view entry : base::Split(environment ? *environment : std::string(), '\0')) {
        if (!entry.starts_with(variable)) continue;
        if (const auto number = base::ParseInteger<int>(entry.substr(variable.size()))) found = rank_with(*number);
      }
      break;
    }
    const auto parent = wire::ReadProcessStat(ancestor);
    if (!parent) break;
    ancestor = parent->parent;
  }
  if (found) rank_of_process_[key] = *found;
  return found;
}

void Supervisor::ShowCardUsage() {
  for (std::size_t card = 0; card < card_ranks_.size(); ++card) {
    const diagnosis::Usage now = card_usage_->Now(card);
    const auto shown = now == diagnosis::Usage::kBusy   ? wire::CardUse::kBusy
                       : now == diagnosis::Usage::kIdle ? wire::CardUse::kIdle
                                                        : wire::CardUse::kUnknown;
    for (const int local_rank : card_ranks_[card]) group_->ShowCardUse(local_rank, shown);
  }
}

void Supervisor::OnCardRound() {
  if (idle_failed_) return;
  ShowCardUsage();
  const std::vector<diagnosis::CardVerdict> verdicts = card_usage_->Verdicts();
  const bool all_work = std::all_of(verdicts.begin(), verdicts.end(), [](const diagnosis::CardVerdict& verdict) {
    return verdict.usage == diagnosis::Usage::kBusy && verdict.active >= kConvincing;
  });
  if (all_work && !all_cards_worked_) {
    all_cards_worked_ = true;
    Report(diagnosis::CardUsageEvent(*card_usage_, verdicts, "running"));
  }
  for (std::size_t card = 0; card < verdicts.size(); ++card) {
    const auto idle = card_usage_->FellIdle(card);
    if (!idle || idle_later_reported_[card]) continue;
    idle_later_reported_[card] = true;
    Report(diagnosis::CardIdleLaterEvent(card_usage_->card(card), *idle));
  }
  if (loop_.clock().Now() - attempt_began_ < plan_->flags.idle_card_after) return;
  ReportIdleCards(verdicts);
  const job::IdleCardPolicy policy = plan_->flags.idle_card;
  const auto has = [&](auto condition) { return std::any_of(verdicts.begin(), verdicts.end(), condition); };
  const bool idle = has([](const diagnosis::CardVerdict& verdict) { return verdict.usage == diagnosis::Usage::kIdle; });
  // Other reasons for "unknown" may be temporary.
  const bool never_known = has([](const diagnosis::CardVerdict& verdict) { return verdict.reason == "no-telemetry"; });
  const bool fails =
      (idle && policy != job::IdleCardPolicy::kWarn) || (never_known && policy == job::IdleCardPolicy::kRequire);
  if (!fails) return;
  LogLine(fmt::format("error: stopping the run, as --idle-card {} asks",
                      policy == job::IdleCardPolicy::kRequire ? "require" : "fail"));
  idle_failed_ = true;
  // Deferred: stopping the attempt destroys the watch that is calling.
  loop_.After(milliseconds(0), [this] { BeginStop(SIGTERM, plan_->flags.grace); });
}

void Supervisor::OnCardWatchEnded() {
  card_watch_->Reaped();
  if (!card_usage_) return;
  card_usage_->Lost();
  Report({"card-watch-ended",
          events::Severity::kWarning,
          {},
          "cannot know any more whether every card works: the process that reads the cards has ended"});
}

// Reports each idle card once.
void Supervisor::ReportIdleCards(const std::vector<diagnosis::CardVerdict>& verdicts) {
  for (std::size_t card = 0; card < verdicts.size(); ++card) {
    if (verdicts[card].usage != diagnosis::Usage::kIdle || idle_reported_[card]) continue;
    idle_reported_[card] = true;
    Report(diagnosis::CardIdleEvent(card_usage_->card(card), verdicts[card]));
  }
}

// When every rank has ended: reads the counters of their cards once more. True while the reading is pending.
bool Supervisor::WaitForLastReading() {
  if (!card_usage_ || !card_watch_ || phase_ != Phase::kRunning || last_reading_ == LastReading::kDone) return false;
  if (last_reading_ == LastReading::kRequested) return true;
  // Only a counter outlives a process.
  if (!plan_->ranks.front().card->simulated || !card_watch_->RequestReading()) return false;
  last_reading_ = LastReading::kRequested;
  last_reading_timer_ = loop_.After(kLastReadingTimeout, [this] {
    last_reading_ = LastReading::kDone;
    CheckAllGone();
  });
  return true;
}

// The verdict on the attempt. A failed or stopped attempt has its own reason; the verdict is then only recorded.
void Supervisor::EndCardWatch(bool ended_well) {
  loop_.Remove(last_reading_timer_);
  last_reading_timer_ = 0;
  card_watch_.reset();
  if (!card_usage_) return;
  const std::vector<diagnosis::CardVerdict> verdicts = card_usage_->Verdicts();
  const events::Event summary = diagnosis::CardUsageEvent(*card_usage_, verdicts, "end");
  const auto is = [](diagnosis::Usage usage) {
    return [usage](const diagnosis::CardVerdict& verdict) { return verdict.usage == usage; };
  };
  const bool all_work = std::all_of(verdicts.begin(), verdicts.end(), is(diagnosis::Usage::kBusy));
  const bool idle = std::any_of(verdicts.begin(), verdicts.end(), is(diagnosis::Usage::kIdle));
  const bool unknown = std::any_of(verdicts.begin(), verdicts.end(), is(diagnosis::Usage::kUnknown));
  if (ended_well) ReportIdleCards(verdicts);
  for (std::size_t card = 0; card < verdicts.size(); ++card) {
    if (verdicts[card].usage != diagnosis::Usage::kUnknown) continue;
    const events::Event event = diagnosis::CardUnknownEvent(card_usage_->card(card), verdicts[card]);
    if (ended_well && event.severity == events::Severity::kWarning) {
      Report(event);
    } else {
      Record(event);
    }
  }
  // That every card works was already printed during the run.
  if (ended_well && !(all_work && all_cards_worked_)) {
    Report(summary);
  } else {
    Record(summary);
  }
  card_usage_.reset();
  const job::IdleCardPolicy policy = plan_->flags.idle_card;
  if (!ended_well || policy == job::IdleCardPolicy::kWarn) return;
  if (!idle && !(unknown && policy == job::IdleCardPolicy::kRequire)) return;
  LogLine(fmt::format("error: the run ended well, and fails because --idle-card {} was given",
                      policy == job::IdleCardPolicy::kRequire ? "require" : "fail"));
  idle_failed_ = true;
}

}  // namespace fulldeck::launcher
