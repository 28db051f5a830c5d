// `fulldeck bench collectives`: every number of ranks × operation × size, each with fulldeck and with the peers in
// turn, in one run, so that they see the same machine. Makes figures; cli/bench_report.h shows them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "bench/element.h"
#include "bench/operation.h"
#include "bench/timeline.h"

namespace fulldeck::bench {

// What is measured in one column.
enum class Contender {
  kFulldeck,        // the engine through C, private buffers
  kFulldeckShared,  // the same in place in memory from fulldeck_allocate; all_reduce only
  kTorch,           // the engine through torch in Python
  kGloo,
  kOpenMpi,
};
const char* NameOf(Contender contender);  // "fulldeck", "fulldeck-shared", "torch", "gloo", "openmpi"

struct BenchPlan {
  std::vector<int> ranks;
  std::vector<std::uint64_t> sizes;  // bytes
  std::vector<const Operation*> operations;
  const Element* element = nullptr;
  std::vector<Contender> contenders;  // the first is the one that the others stand beside
  bool on_cuda = false;               // torch's ranks only
  std::string python = "python3";
  double seconds = 1;            // for one cell of one contender
  double timeout_seconds = 300;  // for one cell of one contender to be done at all
  int rounds = 1;                // how often the contenders take turns in a cell
  bool timeline = false;
  std::optional<Contender> spoiled;  // for tests: the last rank of this one gets a wrong value
};

// The most that one of the plan's cells needs at once, and which cell that is.
struct MemoryNeed {
  std::uint64_t bytes = 0;
  std::string of;  // "all_reduce of 256 MiB with 8 ranks"
};
MemoryNeed NeedOf(const BenchPlan& plan);
// An error that says what is impossible, and with which numbers.
base::Result<void> CheckPlan(const BenchPlan& plan, std::optional<std::uint64_t> available_memory);

// Of the slowest rank of each call, in seconds.
struct Figures {
  int calls = 0;
  double median = 0;
  double p95 = 0;
  double least = 0;
  std::uint64_t checked = 0;  // elements on all ranks
};
// The slowest rank of each call. CHECKs that all ranks made the same number.
std::vector<std::uint64_t> SlowestOf(const std::vector<std::vector<std::uint64_t>>& times_by_rank);
Figures FiguresOf(std::vector<std::uint64_t> slowest_ns);

// Why there are no figures of a contender that failed in an earlier cell.
inline constexpr char kFailedBefore[] = "it failed before";

struct CellOutcome {
  Contender contender = Contender::kFulldeck;
  std::optional<Figures> figures;
  std::string why_not;  // where there are no figures
};

struct CellFigures {
  int ranks = 0;
  const Operation* operation = nullptr;
  std::uint64_t bytes = 0;
  std::vector<CellOutcome> outcomes;  // one for each contender of the plan that is there, in its order
};

struct CellTimeline {
  int ranks = 0;
  std::uint64_t bytes = 0;
  bool shared = false;
  std::vector<RankTimeline> by_rank;
};

// A contender with one number of ranks.
struct Presence {
  Contender contender = Contender::kFulldeck;
  int ranks = 0;
  std::string about;
  std::optional<std::string> absent;  // why it could not be measured
};

struct BenchFigures {
  double memory_bytes_per_second = 0;  // see MeasureMemorySpeed; the better of before and after; 0: no cell needs it
  int cpus = 0;
  std::string load_before;
  std::vector<Presence> present;
  std::vector<CellFigures> cells;
  std::vector<CellTimeline> timelines;
  std::vector<std::string> wrong_values;  // not empty: the run failed, whatever the times are
  std::vector<std::string> failures;      // of fulldeck itself
  bool interrupted = false;
};

// Below this the caches hold the data, and memory is not what bounds it.
inline constexpr std::uint64_t kMinBoundBytes = std::uint64_t{16} << 20;

// The shortest possible time of an all_reduce, in seconds, if memory is the only limit: (5N−2)·S bytes to be loaded and
// stored on the whole host with private buffers, 2N·S with shared ones. Nothing for other operations, for torch and
// peers.
std::optional<double> MemoryBound(Contender contender, const Operation& operation, int ranks, std::uint64_t bytes,
                                  double memory_bytes_per_second);

// Runs it all. `log_line` gets a line now and then for a person who waits; `done` every cell when it is finished.
// Ctrl-C and SIGTERM end it early, with what there is. An error: it could not begin.
base::Result<BenchFigures> RunCollectivesBench(const BenchPlan& plan, const base::Environment& environment,
                                               const std::function<void(const std::string&)>& log_line);

}  // namespace fulldeck::bench
