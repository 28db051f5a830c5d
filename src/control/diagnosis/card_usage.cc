#include "diagnosis/card_usage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

template <typename Numbers>
std::string List(const Numbers& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return base::Join(words, ", ");
}

std::string Ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + List(ranks);
}

bool Has(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

const char* NameOf(Usage usage) {
  switch (usage) {
    case Usage::kBusy:
      return "busy";
    case Usage::kIdle:
      return "idle";
    case Usage::kUnknown:
      break;
  }
  return "unknown";
}

CardUsage::CardUsage(std::vector<UsedCard> cards, base::Duration idle_after) : idle_after_(idle_after) {
  for (UsedCard& card : cards) {
    cards_.emplace_back();
    cards_.back().used = std::move(card);
  }
}

bool CardUsage::IsOwner(const Card& card, std::optional<int> rank) const {
  return rank && Has(card.used.ranks, *rank);
}

// Invariant: intervals, active, ambiguous and the sets of other users only count readings since `began`. They restart
// with every phase, because weaker evidence must not count for a later phase.
void CardUsage::Restart(Card& card, Phase phase, base::TimePoint at) {
  card.phase = phase;
  card.began = card.last_work = at;
  card.pending = Work::kNone;
  card.intervals = card.active = card.ambiguous = 0;
  card.other_ranks.clear();
  card.foreign_pids.clear();
  card.working_ranks.clear();
}

CardUsage::Phase CardUsage::PhaseOf(const Card& card, const CardReading& reading) const {
  const CardProgress& progress = reading.progress;
  // Without hook and runtime there is no probe to exclude, but work before the first step is still not training.
  if (!progress.probes) return progress.stepped ? Phase::kSteps : Phase::kQuiet;
  if (progress.stepped) return Phase::kSteps;
  if (progress.collectives > 0) return Phase::kCollectives;
  return reading.at - card.first >= kQuietDelay ? Phase::kQuiet : Phase::kBefore;
}

CardUsage::Work CardUsage::WorkByCounter(Card& card, const CardReading& reading, const RankOf& rank_of) {
  Work found = Work::kNone;
  for (const device::ProcessWork& process : *reading.work) {
    // Slot and start time identify a process even if its pid is reused.
    const std::pair key{process.slot, process.start_ticks};
    auto rank = card.rank_of.find(key);
    // A process that has exited may have been assigned while it was alive.
    if (process.pid != 0 && (rank == card.rank_of.end() || !rank->second)) {
      rank = card.rank_of.insert_or_assign(key, rank_of(process.pid, process.start_ticks)).first;
    }
    std::optional<int> owner;
    if (rank != card.rank_of.end()) owner = rank->second;
    if (owner && IsOwner(card, owner)) card.own_holders.insert(*owner);
    const auto before = card.busy_ns.find(key);
    // Work of foreign processes before the first reading does not belong to this run; the ranks started with the run.
    const std::uint64_t from = before != card.busy_ns.end() ? before->second : card.read || owner ? 0 : process.busy_ns;
    card.busy_ns[key] = process.busy_ns;
    if (process.busy_ns <= from) continue;
    if (owner) card.working_ranks.insert(*owner);
    if (IsOwner(card, owner)) {
      found = Work::kOwn;
    } else if (owner) {
      card.other_ranks.insert(*owner);
    } else if (process.pid != 0) {
      card.foreign_pids.insert(process.pid);
    }
  }
  return found;
}

CardUsage::Work CardUsage::WorkByPercent(Card& card, const CardReading& reading, const RankOf& rank_of) {
  if (reading.percent.value_or(0) <= 0) return Work::kNone;
  if (!reading.holders) {
    card.holder_unknown = true;
    return Work::kAmbiguous;
  }
  bool own = false;
  bool others = false;
  for (const int pid : *reading.holders) {
    const std::optional<int> rank = rank_of(pid, 0);
    own = own || IsOwner(card, rank);
    others = others || !IsOwner(card, rank);
    if (rank) card.working_ranks.insert(*rank);
    if (rank && !IsOwner(card, rank)) card.other_ranks.insert(*rank);
    if (!rank) card.foreign_pids.insert(pid);
  }
  if (!own && !others) {  // work was seen, but the card has no known holder
    card.holder_unknown = true;
    return Work::kAmbiguous;
  }
  if (!own) return Work::kNone;
  return others ? Work::kAmbiguous : Work::kOwn;
}

void CardUsage::Observe(const CardReading& reading, const RankOf& rank_of) {
  if (reading.card < 0 || static_cast<std::size_t>(reading.card) >= cards_.size()) return;
  Card& card = cards_[static_cast<std::size_t>(reading.card)];
  // Readings of a card must be in order of time; a late one is dropped.
  if (card.read && reading.at < card.last) return;
  if (!card.read) card.first = reading.at;
  card.reported = card.reported || reading.percent || reading.work;
  card.counter = card.counter || reading.work;
  if (reading.holders) {
    card.holders = reading.holders;
    for (const int pid : *reading.holders) {
      if (const auto rank = rank_of(pid, 0); IsOwner(card, rank)) card.own_holders.insert(*rank);
    }
  }
  // A Python rank loads the hook shortly after its start.
  if (reading.progress.probes && !card.probes) Restart(card, Phase::kBefore, reading.at);
  card.probes = card.probes || reading.progress.probes;
  const bool old_percent = card.probes && reading.at - card.began < kPercentWindow;
  Work work = reading.work  ? WorkByCounter(card, reading, rank_of)
              : old_percent ? Work::kNone
                            : WorkByPercent(card, reading, rank_of);
  const CardProgress& progress = reading.progress;
  // The increase in this reading may come from the probe; increases in later readings cannot.
  const bool probed = progress.probed_ns > card.probed_ns;
  card.probed_ns = std::max(card.probed_ns, progress.probed_ns);
  card.model_on_cpu = progress.model_on_cpu;
  if (probed) work = Work::kNone;
  card.ever_own = card.ever_own || work != Work::kNone;
  if (work != Work::kNone) card.worked = reading.at;
  const bool first = !card.read;
  card.read = true;
  card.last = reading.at;

  const bool advanced = card.stepped                        ? progress.steps > card.steps
                        : progress.stepped                  ? true
                        : card.phase == Phase::kCollectives ? progress.collectives > card.collectives
                                                            : !first;
  card.stepped = progress.stepped;
  card.steps = progress.steps;
  card.collectives = progress.collectives;
  // Invariant: the phase never goes back, except to kBefore when the hook is loaded, which may start a probe.
  const Phase phase = PhaseOf(card, reading);
  if (phase > card.phase) {
    // The probe runs before the group that a collective needs is created.
    const bool probe_is_over = !card.probes || (card.phase == Phase::kCollectives && !probed);
    Restart(card, phase, reading.at);
    // This reading covers work before the new phase, possibly the probe's.
    if (!probe_is_over) return;
  }
  if (card.phase == Phase::kBefore) return;
  if (probed && card.phase == Phase::kQuiet) return Restart(card, card.phase, reading.at);
  if (work != Work::kNone) card.last_work = reading.at;
  card.pending = std::max(card.pending, work);
  // Until kPercentWindow has passed, a percentage may still include the probe and is not evidence.
  if (!advanced || (!reading.work && old_percent)) return;
  ++card.intervals;
  card.active += card.pending == Work::kOwn ? 1 : 0;
  card.ambiguous += card.pending == Work::kAmbiguous ? 1 : 0;
  card.pending = Work::kNone;
}

CardVerdict CardUsage::Verdict(std::size_t index) const {
  const Card& card = cards_[index];
  CardVerdict verdict;
  const auto unknown = [&](const char* reason) {
    verdict.usage = Usage::kUnknown;
    verdict.reason = reason;
    return verdict;
  };
  verdict.intervals = card.intervals;
  verdict.active = card.active;
  const auto idle = [&] {
    // Invariant: without readings up to the end no card is called idle.
    if (lost_) return unknown("not-read");
    verdict.usage = Usage::kIdle;
    Explain(index, verdict);
    return verdict;
  };
  if (!card.read) return unknown("not-read");
  if (card.model_on_cpu) return idle();
  if (!card.reported) return unknown("no-telemetry");
  int ambiguous = card.ambiguous;
  // Work since the last step, or work in a run whose only step has not ended.
  if (card.intervals == 0 && card.pending != Work::kNone && card.counter) {
    verdict.intervals = 1;
    verdict.active = card.pending == Work::kOwn ? 1 : 0;
    ambiguous = 1 - verdict.active;
  }
  const base::Duration observed = card.last - (card.phase == Phase::kBefore ? card.first : card.began);
  if (card.phase == Phase::kBefore || verdict.intervals == 0) {
    const bool nothing = !card.ever_own && card.last - card.first >= idle_after_;
    return nothing ? idle() : unknown("run-too-short");
  }
  // A counter of the rank's own processes after a step is conclusive. A percentage is not, nor is a counter if the rank
  // may have been probed since.
  const bool certain = card.counter && (card.stepped || !card.probes);
  const int needed = certain ? std::min(kSeveral, verdict.intervals) : kSeveral;
  const bool share = !card.stepped || verdict.active + ambiguous >= kMinShare * verdict.intervals;
  if (verdict.active >= needed && share) {
    verdict.usage = Usage::kBusy;
    verdict.reason = card.counter ? "counter" : "readings";
    return verdict;
  }
  if (verdict.active + ambiguous >= needed && share) return unknown(card.holder_unknown ? "holder-unknown" : "shared");
  const bool enough = card.counter && card.stepped ? true
                      : card.counter               ? observed >= kMinObservation && verdict.intervals >= kSeveral
                                                   : verdict.intervals >= kSeveral;
  if (!enough) return unknown("run-too-short");
  // Readings are not steps: a rank that reports none may have little to compute.
  if (card.phase == Phase::kQuiet && verdict.active + ambiguous > 0) return unknown("few-readings");
  return idle();
}

std::vector<CardVerdict> CardUsage::Verdicts() const {
  std::vector<CardVerdict> verdicts;
  for (std::size_t card = 0; card < cards_.size(); ++card) verdicts.push_back(Verdict(card));
  return verdicts;
}

void CardUsage::Explain(std::size_t index, CardVerdict& verdict) const {
  const Card& card = cards_[index];
  verdict.used_by_ranks.assign(card.other_ranks.begin(), card.other_ranks.end());
  verdict.used_by_pids.assign(card.foreign_pids.begin(), card.foreign_pids.end());
  for (const Card& other : cards_) {
    if (&other == &card) continue;
    for (const int rank : card.used.ranks) {
      if (other.working_ranks.contains(rank)) verdict.works_on = other.used.name;
    }
  }
  if (card.model_on_cpu) {
    verdict.reason = "model-on-cpu";
  } else if (verdict.active > 0) {
    verdict.reason = "burst";
  } else if (!verdict.used_by_ranks.empty()) {
    verdict.reason = "other-rank";
  } else if (!verdict.used_by_pids.empty()) {
    verdict.reason = "foreign-process";
  } else if (!verdict.works_on.empty()) {
    verdict.reason = "rank-on-other-card";
  } else if (card.holders && card.own_holders.empty()) {
    verdict.reason = "not-opened";
  } else {
    verdict.reason = "no-work";
  }
}

std::optional<base::Duration> CardUsage::FellIdle(std::size_t index) const {
  const Card& card = cards_[index];
  const base::Duration idle = card.last - card.last_work;
  if (idle < idle_after_ || Verdict(index).usage != Usage::kBusy) return std::nullopt;
  return idle;
}

Usage CardUsage::Now(std::size_t index) const {
  const Usage usage = Verdict(index).usage;
  return usage == Usage::kBusy && FellIdle(index) ? Usage::kIdle : usage;
}

events::Event CardUsageEvent(const CardUsage& usage, const std::vector<CardVerdict>& verdicts,
                             const std::string& when) {
  std::vector<std::string> busy, idle, unknown, reasons;
  std::size_t ranks = 0;
  for (std::size_t card = 0; card < verdicts.size(); ++card) {
    const std::string& name = usage.card(card).name;
    ranks += usage.card(card).ranks.size();
    (verdicts[card].usage == Usage::kBusy   ? busy
     : verdicts[card].usage == Usage::kIdle ? idle
                                            : unknown)
        .push_back(name);
    reasons.push_back(name + ": " + verdicts[card].reason);
  }
  std::string message;
  if (busy.size() == verdicts.size()) {
    message = ranks == 1
                  ? std::string("the card works: its rank was seen at work on it")
                  : fmt::format("every card works: {} ranks on {} distinct cards, each seen at work for its rank",
                                ranks, verdicts.size());
  } else {
    const auto part = [&](const std::vector<std::string>& names, const char* what) {
      if (names.empty()) return;
      message += fmt::format("{}{} {}", message.empty() ? "cards: " : "; ", base::Join(names, ", "), what);
    };
    part(busy, "busy");
    part(idle, "IDLE");
    part(unknown, "unknown");
    const bool short_run = std::all_of(verdicts.begin(), verdicts.end(), [](const CardVerdict& verdict) {
      return verdict.usage != Usage::kUnknown || verdict.reason == "run-too-short";
    });
    if (!unknown.empty() && short_run) message += " (the run was too short to know)";
  }
  return {"card-usage",
          events::Severity::kInfo,
          {{"when", when}, {"busy", busy}, {"idle", idle}, {"unknown", unknown}, {"reasons", reasons}},
          std::move(message)};
}

events::Event CardIdleEvent(const UsedCard& card, const CardVerdict& verdict) {
  const std::string rank = Ranks(card.ranks);
  std::string why;
  if (verdict.reason == "model-on-cpu") {
    why = fmt::format(
        "{} trains on the CPU, where the optimizer's parameters are. Fix: move the model to the card before the "
        "optimizer is made (model.to(device))",
        rank);
  } else if (verdict.reason == "burst") {
    why = fmt::format("{} worked on it in only {} of {} intervals: the training does not run on it", rank,
                      verdict.active, verdict.intervals);
  } else if (verdict.reason == "other-rank") {
    why = fmt::format("{} keeps it busy, not {}", Ranks(verdict.used_by_ranks), rank);
  } else if (verdict.reason == "foreign-process") {
    why = fmt::format("process {}, which is not part of this run, keeps it busy, and {} gives it no work",
                      List(verdict.used_by_pids), rank);
  } else if (verdict.reason == "rank-on-other-card") {
    why = fmt::format("{} does not work on it", rank);
  } else if (verdict.reason == "not-opened") {
    why = fmt::format(
        "{} has not opened it. The script computes on the CPU, or is still reading data; see: fulldeck logs --rank {}",
        rank, card.ranks.front());
  } else {
    why = fmt::format(
        "{} gives it no work: it waits for data or for other ranks, computes on the CPU, or the card "
        "does not compute",
        rank);
  }
  if (!verdict.works_on.empty()) {
    why += fmt::format("; {} works on {} instead. Fix: put model and data on device number LOCAL_RANK", rank,
                       verdict.works_on);
  }
  return {"card-idle",
          events::Severity::kWarning,
          {{"card", card.name},
           {"ranks", events::Numbers(card.ranks)},
           {"reason", verdict.reason},
           {"works_on", verdict.works_on},
           {"used_by_ranks", events::Numbers(verdict.used_by_ranks)},
           {"used_by_pids", events::Numbers(verdict.used_by_pids)},
           {"intervals", std::int64_t{verdict.intervals}},
           {"active_intervals", std::int64_t{verdict.active}}},
          fmt::format("{} is IDLE: {}", card.name, why)};
}

events::Event CardUnknownEvent(const UsedCard& card, const CardVerdict& verdict) {
  std::string why;
  if (verdict.reason == "run-too-short") {
    why = "the run was too short";
  } else if (verdict.reason == "no-telemetry") {
    why = "no source reports its utilization";
  } else if (verdict.reason == "holder-unknown") {
    why = "it is busy, and no source reports which processes use it";
  } else if (verdict.reason == "few-readings") {
    why = "it worked in too few readings, and the program reports no steps to compare them with";
  } else if (verdict.reason == "shared") {
    why = "it is busy, but processes other than those of its rank have it open too";
  } else {
    why = "it could not be read";
  }
  // A short run, or a vendor that does not list processes, requires no action.
  const bool act = verdict.reason == "no-telemetry" || verdict.reason == "not-read";
  return {"card-usage-unknown",
          act ? events::Severity::kWarning : events::Severity::kInfo,
          {{"card", card.name}, {"ranks", events::Numbers(card.ranks)}, {"reason", verdict.reason}},
          fmt::format("cannot know whether {} works for {}: {}", card.name, Ranks(card.ranks), why)};
}

events::Event CardWatchFailedEvent(const std::string& reason) {
  return {"card-watch-failed",
          events::Severity::kWarning,
          {{"reason", reason}},
          "cannot know whether the cards work: nothing reads them: " + reason};
}

events::Event CardIdleLaterEvent(const UsedCard& card, base::Duration idle) {
  const double seconds = std::chrono::duration<double>(idle).count();
  return {"card-idle-later",
          events::Severity::kWarning,
          {{"card", card.name}, {"ranks", events::Numbers(card.ranks)}, {"seconds", seconds}},
          fmt::format("{} has done nothing for {:.0f} s, after it worked for {}; see: fulldeck logs --rank {}",
                      card.name, seconds, Ranks(card.ranks), card.ranks.front())};
}

}  // namespace fulldeck::diagnosis
