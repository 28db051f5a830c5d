// `fulldeck doctor --collectives`: every collective and every pair of ranks, with every value checked and the times
// beside what this machine's memory allows. Names the rank or the pair that is wrong, slow, dead or hung.
//
// With fulldeck's own engine in processes of this program, or with any backend of torch.distributed in the user's
// Python, on the cards that the backend is for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "device/inventory.h"
#include "doctor/check.h"
#include "doctor/collectives/collectives_rank.h"
#include "doctor/collectives/collectives_step.h"

namespace fulldeck::doctor {

inline constexpr int kMaxRanks = 256;  // of a group

struct ProofPlan {
  std::string backend = "fulldeck";  // "fulldeck": the engine itself; else a name that torch.distributed knows
  int ranks = 2;
  std::vector<std::uint64_t> sizes;  // bytes
  // For torch: what each rank works on ("cpu", "gcu:3") and what must be imported for that.
  std::vector<std::string> devices;
  std::string module;
  std::string python = "python3";
  double timeout_seconds = 10;  // of one step, and of a torch that starts six times that
  std::string fault;            // for tests: see ProofFault
};

// The plan's devices and module for its backend: the cards of the inventory whose own backend this is, else the
// cpus. An error that says what is missing.
base::Result<void> ChooseDevices(const device::Inventory& inventory, ProofPlan& plan);
// How many ranks a proof has when nobody says: one a visible card; two where there is none or one.
int RanksFor(const device::Inventory& inventory);

struct SizeFigure {
  std::uint64_t bytes = 0;
  double seconds = 0;              // median over the calls, of the slowest rank of each
  double least = 0;                // of them, and of a few more tries where it seems slow
  std::optional<double> possible;  // what memory alone would take; nothing below kMinBoundBytes and for torch
  bool judged = false;             // where all ranks copy at once; with a root one processor may be the limit
};
struct OperationFigures {
  std::string name;
  int steps = 0;  // that were right on all ranks
  std::uint64_t checked = 0;
  std::vector<SizeFigure> sizes;
  std::optional<std::string> cannot;  // of some of the steps: what the library said
};
struct PairFigures {
  int from = 0;
  int to = 0;
  double latency_seconds = 0;   // of a few bytes, one way
  double bytes_per_second = 0;  // one way
};

struct ProofReport {
  std::string backend;
  std::string about;
  int ranks = 0;
  int cpus = 0;
  double memory_bytes_per_second = 0;  // 0: not measured, because no size needs it
  double load = 0;                     // of the machine, before it began
  bool busy = false;                   // more than two for each processor: speeds are shown, and not judged
  std::uint64_t pair_bytes = 0;
  std::vector<OperationFigures> operations;
  std::vector<PairFigures> pairs;
  std::vector<Finding> findings;  // what is wrong; empty: all is well
  std::uint64_t checked = 0;
  bool interrupted = false;
};

// An error: it could not begin. `log_line` gets a line now and then for a person who waits.
base::Result<ProofReport> ProveCollectives(const ProofPlan& plan, const base::Environment& environment,
                                           const std::function<void(const std::string&)>& log_line);

// ---- judgement; pure ----

// Bytes loaded and stored on the whole host for one call through shared memory. 0: not known.
double BytesMoved(const bench::Operation& operation, int ranks, std::uint64_t bytes);

// A pair is slow when it has less than a third of the median bandwidth of all; at least three pairs make a median.
struct SlowPairs {
  double median_bytes_per_second = 0;
  std::vector<PairFigures> slow;  // slowest first
  std::optional<int> rank;        // the one that all the slow ones share, when most of its pairs are slow
};
SlowPairs FindSlowPairs(const std::vector<PairFigures>& pairs);

// Who did not come. `states` are the letters of /proc/PID/stat, '?' where unknown.
struct Absence {
  std::vector<int> ranks;
  bool inside = false;  // all are inside the call: the ranks are those that are stopped, or none
};
Absence FindAbsent(const std::vector<int>& silent, const std::vector<RankProgress>& progress, int step,
                   const std::string& states);

// What wrong values on these ranks mean.
Finding WrongValueFinding(const Step& step, const std::vector<std::pair<int, StepAnswer::Wrong>>& wrong, int ranks);

}  // namespace fulldeck::doctor
