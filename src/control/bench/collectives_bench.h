// `fulldeck bench collectives`: measures every number of ranks × operation × size with fulldeck and its peers in turn,
// in one run, so that all see the same machine. Only measures; cli/bench_report.h prints the results.
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

// What one column measures.
enum class Contender {
  kFulldeck,        // the engine through its C interface, private buffers
  kFulldeckShared,  // the same, in place in memory from fulldeck_allocate; all_reduce only
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
  std::vector<Contender> contenders;  // the others are compared with the first
  bool on_cuda = false;               // torch's ranks only
  std::string python = "python3";
  double seconds = 1;            // per cell and contender
  double timeout_seconds = 300;  // timeout per cell and contender
  int rounds = 1;                // how often the contenders take turns in a cell
  bool timeline = false;
  std::optional<Contender> spoiled;  // for tests: the last rank of this contender gets a wrong value
};

// The highest memory need of a cell of the plan, and which cell that is.
struct MemoryNeed {
  std::uint64_t bytes = 0;
  std::string of;  // "all_reduce of 256 MiB with 8 ranks"
};
MemoryNeed NeedOf(const BenchPlan& plan);
// The error says what is impossible, with numbers.
base::Result<void> CheckPlan(const BenchPlan& plan, std::optional<std::uint64_t> available_memory);

// Times of the slowest rank of each call, in seconds.
struct Figures {
  int calls = 0;
  double median = 0;
  double p95 = 0;
  double least = 0;
  std::uint64_t checked = 0;  // elements, over all ranks
};
// The time of the slowest rank in each call. CHECKs that all ranks made the same number of calls.
std::vector<std::uint64_t> SlowestOf(const std::vector<std::vector<std::uint64_t>>& times_by_rank);
Figures FiguresOf(std::vector<std::uint64_t> slowest_ns);

// Why a contender that failed in an earlier cell has no times.
inline constexpr char kFailedBefore[] = "it failed before";

struct CellOutcome {
  Contender contender = Contender::kFulldeck;
  std::optional<Figures> figures;
  std::string why_not;  // if there are no times
};

struct CellFigures {
  int ranks = 0;
  const Operation* operation = nullptr;
  std::uint64_t bytes = 0;
  std::vector<CellOutcome> outcomes;  // one per available contender of the plan, in its order
};

struct CellTimeline {
  int ranks = 0;
  std::uint64_t bytes = 0;
  bool shared = false;
  std::vector<RankTimeline> by_rank;
};

// A contender with a given number of ranks.
struct Presence {
  Contender contender = Contender::kFulldeck;
  int ranks = 0;
  std::string about;
  std::optional<std::string> absent;  // why it could not be measured
};

struct BenchFigures {
  double memory_bytes_per_second = 0;  // see MeasureMemorySpeed; the higher of before and after; 0: no cell needs it
  int cpus = 0;
  std::string load_before;
  std::vector<Presence> present;
  std::vector<CellFigures> cells;
  std::vector<CellTimeline> timelines;
  std::vector<std::string> wrong_values;  // if not empty, the run failed, whatever the times are
  std::vector<std::string> failures;      // of fulldeck itself
  bool interrupted = false;
};

// Smaller data fits into the caches and is not limited by memory bandwidth.
inline constexpr std::uint64_t kMinBoundBytes = std::uint64_t{16} << 20;

// The shortest possible time of an all_reduce, in seconds, if memory bandwidth is the only limit: the node loads and
// stores (5N−2)·S bytes with private buffers, 2N·S with shared ones. nullopt for other operations, for torch and for
// peers.
std::optional<double> MemoryBound(Contender contender, const Operation& operation, int ranks, std::uint64_t bytes,
                                  double memory_bytes_per_second);

// Runs the plan. `log_line` gets occasional progress lines. Ctrl-C and SIGTERM end it early, with the results so far.
// An error means that it could not start.
base::Result<BenchFigures> RunCollectivesBench(const BenchPlan& plan, const base::Environment& environment,
                                               const std::function<void(const std::string&)>& log_line);

}  // namespace fulldeck::bench
