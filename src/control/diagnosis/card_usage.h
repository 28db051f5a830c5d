// Decides for each card of a run whether it works for its rank: busy, idle or unknown, with the reason. Pure: takes
// readings (card_watch.h makes them) and reads neither the clock nor the process table.
//
// "Busy" requires evidence that fulldeck's own probe of a card cannot produce:
//   - Work counts only after the rank's first training step. Without reported steps, it counts after the first
//     collective; without collectives either, after kQuietDelay, and not before the end of a later probe. A rank that
//     loads neither fulldeck's hook nor its runtime counts from its start.
//   - Work counts only if a process of the rank itself does it, according to the vendor's per-process counter or,
//     without one, the list of processes that have the card open. Work of another rank or of a foreign process is idle
//     for the card's own rank.
//   - Work is counted per interval: from one step (or collective, or reading) to the next. Several intervals must have
//     work, and a tenth of those that end with a step: a burst at the start is not training on the card. If a rank
//     reports neither steps nor collectives, work in fewer readings means unknown, because readings do not show how
//     much it had to do.
//   - A rank that trains parameters on the CPU does not train on its card, whatever runs there.
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

// Progress of the ranks of a card, from the rank board. Read before the card's telemetry, so that work between a step
// and the reading counts as work after the step.
struct CardProgress {
  bool probes = false;  // a rank has loaded our hook or runtime, which may compute on the card itself
  bool stepped = false;
  std::uint64_t steps = 0;
  std::uint64_t collectives = 0;  // completed ones, without the creation of groups
  std::uint64_t probed_ns = 0;    // end of our last probe of the card; 0: none has ended
  bool model_on_cpu = false;      // every rank of the card has its optimizer's parameters on the CPU (failure code B6)
};

struct CardReading {
  int card = 0;  // index in the run's cards
  base::TimePoint at{};
  std::optional<double> percent;            // absent: not reported by any source
  std::optional<std::vector<int>> holders;  // pids that have the card open; absent: unknown
  std::optional<std::vector<device::ProcessWork>>
      work;  // absent: the vendor has no such counter, and `percent` is used
  CardProgress progress;
};

// One card of the run and the ranks that are placed on it.
struct UsedCard {
  std::string name;  // "gcu 3"
  std::vector<int> ranks;
};

enum class Usage { kUnknown, kBusy, kIdle };
const char* NameOf(Usage usage);  // "unknown", "busy", "idle"

struct CardVerdict {
  Usage usage = Usage::kUnknown;
  // For idle: model-on-cpu, burst, other-rank, foreign-process, rank-on-other-card, not-opened, no-work. For unknown:
  // run-too-short, few-readings, no-telemetry, not-read, holder-unknown, shared. For busy: counter, readings.
  std::string reason;
  int intervals = 0;               // intervals observed
  int active = 0;                  // intervals in which the rank's own processes worked
  std::string works_on;            // another card of the run that the ranks of this card work on
  std::vector<int> used_by_ranks;  // other ranks that use the card
  std::vector<int> used_by_pids;   // foreign processes that use it
};

class CardUsage {
 public:
  // The rank of the run that a process belongs to; nullopt for a foreign process. start_ticks 0: unknown.
  using RankOf = std::function<std::optional<int>(int pid, std::uint64_t start_ticks)>;

  // After this time our probe has ended even in a rank that reports nothing on the board.
  static constexpr std::chrono::seconds kQuietDelay{5};
  // Vendors average utilization over up to a second; the simulated cards average over half a second.
  static constexpr std::chrono::seconds kPercentWindow{2};
  // Minimum observation time before a rank that reports no steps is called idle.
  static constexpr std::chrono::seconds kMinObservation{1};
  static constexpr int kSeveral = 3;
  static constexpr double kMinShare = 0.1;

  // `idle_after`: a busy card that then does nothing for this long is reported.
  CardUsage(std::vector<UsedCard> cards, base::Duration idle_after);

  std::size_t size() const { return cards_.size(); }
  const UsedCard& card(std::size_t card) const { return cards_[card].used; }

  void Observe(const CardReading& reading, const RankOf& rank_of);
  // The cards are no longer read: a card that was not seen working can no longer be called idle.
  void Lost() { lost_ = true; }

  // The verdict on all readings so far; final at the end of a run.
  CardVerdict Verdict(std::size_t card) const;
  std::vector<CardVerdict> Verdicts() const;

  // Current state for displays: a busy card that has done nothing for `idle_after` is idle.
  Usage Now(std::size_t card) const;
  // When it was last seen working; for its own ranks, as far as that is known.
  std::optional<base::TimePoint> Worked(std::size_t card) const { return cards_[card].worked; }
  // How long a previously busy card has done nothing, if at least `idle_after`; otherwise nullopt.
  std::optional<base::Duration> FellIdle(std::size_t card) const;

 private:
  // In order of evidence that the rank trains. A later phase restarts the count.
  enum class Phase { kBefore, kQuiet, kCollectives, kSteps };
  enum class Work { kNone, kAmbiguous, kOwn };

  struct Card {
    UsedCard used;
    Phase phase = Phase::kBefore;
    bool read = false;
    bool reported = false;  // some source has reported a percentage or a counter
    bool counter = false;
    bool probes = false;
    bool stepped = false;
    bool ever_own = false;  // work of the rank's own processes was seen at any time
    base::TimePoint first{}, last{}, began{}, last_work{};
    std::uint64_t steps = 0, collectives = 0, probed_ns = 0;
    bool model_on_cpu = false;
    Work pending = Work::kNone;  // since the last interval ended
    bool holder_unknown = false;
    int intervals = 0, active = 0, ambiguous = 0;
    std::optional<std::vector<int>> holders;
    std::map<std::pair<int, std::uint64_t>, std::uint64_t> busy_ns;       // by slot and start time
    std::map<std::pair<int, std::uint64_t>, std::optional<int>> rank_of;  // owner of each process in busy_ns
    std::set<int> own_holders;                                            // ranks of this card that have it open
    std::set<int> other_ranks, foreign_pids;                              // that work on it
    std::set<int> working_ranks;                                          // of any card, since `began`
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

// The events for the verdicts of a run. `when`: "running" or "end".
events::Event CardUsageEvent(const CardUsage& usage, const std::vector<CardVerdict>& verdicts, const std::string& when);
events::Event CardIdleEvent(const UsedCard& card, const CardVerdict& verdict);
events::Event CardUnknownEvent(const UsedCard& card, const CardVerdict& verdict);
events::Event CardWatchFailedEvent(const std::string& reason);
events::Event CardIdleLaterEvent(const UsedCard& card, base::Duration idle);

}  // namespace fulldeck::diagnosis
