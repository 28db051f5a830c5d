// Does each card of a run work for its rank? Three verdicts per card: busy, idle, unknown, with the reason. Pure: it is
// shown readings (card_watch.h takes them) and reads neither clock nor process table.
//
// Busy needs evidence that fulldeck's own probe of a card cannot create:
//   - Work counts only after the rank's first training step (its first collective where it reports no step; after
//     kQuietDelay where it reports neither, and not before the end of a probe that comes later). A rank without our
//     hook or runtime counts from its start.
//   - Work counts only if a process of the rank itself does it: by the vendor's counter per process, else by the list
//     of processes that have the card open. Work of another rank or of a foreign process on the card is idle for its
//     rank.
//   - Work is looked for in intervals: from one step (or collective, or reading) to the next. It must be in several of
//     them, and in a tenth of those that end with a step: a burst at the start is not training on the card. Of a rank
//     that reports neither steps nor collectives, work in fewer readings is unknown: they do not show how much it had
//     to do.
//   - A rank that trains parameters on the CPU does not train on its card, whatever it does there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/card.h"
#include "events/event.h"

namespace fulldeck::diagnosis {

// How far the ranks of a card are, from the rank board. Read before the card's figures, so that work between a step
// and the reading is counted after the step.
struct CardProgress {
  bool probes = false;  // a rank has our hook or runtime loaded, which may compute on the card by itself
  bool stepped = false;
  std::uint64_t steps = 0;
  std::uint64_t collectives = 0;  // completed ones, without the making of groups
  std::uint64_t probed_ns = 0;    // when our last probe of the card ended; 0: none did
  bool model_on_cpu = false;      // every rank of the card has its optimizer's parameters on the CPU (failure code B6)
};

struct CardReading {
  int card = 0;  // position among the run's cards
  base::TimePoint at{};
  std::optional<double> percent;            // absent: no source reports it
  std::optional<std::vector<int>> holders;  // pids that have the card open; absent: cannot be known
  std::optional<std::vector<device::ProcessWork>>
      work;  // absent: the vendor has no such counter; then `percent` counts
  CardProgress progress;
};

// One card of the run and the ranks that were placed on it.
struct UsedCard {
  std::string name;  // "gcu 3"
  std::vector<int> ranks;
};

enum class Usage { kUnknown, kBusy, kIdle };
const char* NameOf(Usage usage);  // "unknown", "busy", "idle"

struct CardVerdict {
  Usage usage = Usage::kUnknown;
  // Of idle: model-on-cpu, burst, other-rank, foreign-process, rank-on-other-card, not-opened, no-work.
  // Of unknown: run-too-short, few-readings, no-telemetry, not-read, holder-unknown, shared.
  // Of busy: counter, readings.
  std::string reason;
  int intervals = 0;               // in which work was looked for
  int active = 0;                  // in which the rank's own processes worked
  std::string works_on;            // another card of the run that the card's ranks work on
  std::vector<int> used_by_ranks;  // other ranks that use the card
  std::vector<int> used_by_pids;   // foreign processes that do
};

class CardUsage {
 public:
  // Which rank of the run a process belongs to; nothing for a foreign one. start_ticks 0: not known.
  using RankOf = std::function<std::optional<int>(int pid, std::uint64_t start_ticks)>;

  // A rank that reports nothing on the board has had time for our probe.
  static constexpr std::chrono::seconds kQuietDelay{5};
  // Vendors' percentages are means over up to a second, ours for simulated cards over half of one.
  static constexpr std::chrono::seconds kPercentWindow{2};
  // Of a program that reports no steps this much must have been seen before it is called idle.
  static constexpr std::chrono::seconds kMinObservation{1};
  static constexpr int kSeveral = 3;
  static constexpr double kMinShare = 0.1;

  // `idle_after`: how long a card may do nothing before that is reported.
  CardUsage(std::vector<UsedCard> cards, base::Duration idle_after);

  std::size_t size() const { return cards_.size(); }
  const UsedCard& card(std::size_t card) const { return cards_[card].used; }

  void Observe(const CardReading& reading, const RankOf& rank_of);
  // Nobody reads the cards any more: what was not seen at work can no longer be called idle.
  void Lost() { lost_ = true; }

  // From all readings so far; at the end of a run final.
  CardVerdict Verdict(std::size_t card) const;
  std::vector<CardVerdict> Verdicts() const;

  // What the card does now, for displays: a busy card that has done nothing for `idle_after` is idle.
  Usage Now(std::size_t card) const;
  // When it was last seen at work, for its ranks as far as that is known.
  std::optional<base::TimePoint> Worked(std::size_t card) const { return cards_[card].worked; }
  // How long a card that was busy has done nothing, once it is `idle_after`; nothing otherwise.
  std::optional<base::Duration> FellIdle(std::size_t card) const;

 private:
  // Stronger evidence that the rank trains restarts the count.
  enum class Phase { kBefore, kQuiet, kCollectives, kSteps };
  enum class Work { kNone, kAmbiguous, kOwn };

  struct Card {
    UsedCard used;
    Phase phase = Phase::kBefore;
    bool read = false;
    bool reported = false;  // some source reports percent or counter
    bool counter = false;
    bool probes = false;
    bool stepped = false;
    bool ever_own = false;  // work of the rank's own processes, whenever
    base::TimePoint first{}, last{}, began{}, last_work{};
    std::uint64_t steps = 0, collectives = 0, probed_ns = 0;
    bool model_on_cpu = false;
    Work pending = Work::kNone;  // since the last interval ended
    bool holder_unknown = false;
    int intervals = 0, active = 0, ambiguous = 0;
    std::optional<std::vector<int>> holders;
    std::map<std::pair<int, std::uint64_t>, std::uint64_t> busy_ns;       // by slot and start time
    std::map<std::pair<int, std::uint64_t>, std::optional<int>> rank_of;  // of those
    std::set<int> own_holders;                                            // ranks of the card that have it open
    std::set<int> other_ranks, foreign_pids;                              // that work on it
    std::set<int> working_ranks;                                          // any rank, since `began`
    std::optional<base::TimePoint> worked;
  };

  bool IsOwner(const Card& card, std::optional<int> rank) const;
  void Restart(Card& card, Phase phase, base::TimePoint at);
  Phase PhaseOf(const Card& card, const CardReading& reading) const;
  Work WorkByCounter(Card& card, const CardReading& reading, const RankOf& rank_of);
  Work WorkByPercent(Card& card, const CardReading& reading, const RankOf& rank_of);
  void Explain(std::size_t card, CardVerdict& verdict) const;

  std::vector<Card> cards_;
  base::Duration idle_after_;
  bool lost_ = false;
};

// The events of a verdict on a whole run. `when`: "running" or "end".
events::Event CardUsageEvent(const CardUsage& usage, const std::vector<CardVerdict>& verdicts, const std::string& when);
events::Event CardIdleEvent(const UsedCard& card, const CardVerdict& verdict);
events::Event CardUnknownEvent(const UsedCard& card, const CardVerdict& verdict);
events::Event CardWatchFailedEvent(const std::string& reason);
events::Event CardIdleLaterEvent(const UsedCard& card, base::Duration idle);

}  // namespace fulldeck::diagnosis
