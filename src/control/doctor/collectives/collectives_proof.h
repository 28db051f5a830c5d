// `fulldeck doctor --collectives`: runs every collective and every pair of ranks, checks every value, and compares the
// times with this machine's memory bandwidth. Names the rank or pair that is wrong, slow, dead or hung.
//
// Runs fulldeck's own engine in processes of this program, or any backend of torch.distributed in the user's Python, on
// the cards that the backend supports.
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

inline constexpr int kMaxRanks = 256;  // per group

struct ProofPlan {
  std::string backend = "fulldeck";  // "fulldeck": the engine itself; otherwise a backend name of torch.distributed
  int ranks = 2;
  std::vector<std::uint64_t> sizes;  // bytes
  // For torch: the device of each rank ("cpu", "gcu:3") and the module that provides it.
  std::vector<std::string> devices;
  std::string module;
  std::string python = "python3";
  double timeout_seconds = 10;  // per step; six times as long for torch to start
  std::string fault;            // for tests: see ProofFault
};

// Sets the plan's devices and module for its backend: the cards of the inventory that use this backend, otherwise the
// CPU. The error says what is missing.
base::Result<void> ChooseDevices(const device::Inventory& inventory, ProofPlan& plan);
// The default number of ranks: one per visible card; two with at most one card.
int RanksFor(const device::Inventory& inventory);

struct SizeFigure {
  std::uint64_t bytes = 0;
  double seconds = 0;              // median over the calls, of the slowest rank of each
  double least = 0;                // minimum of them, and of a few retries if it seems slow
  std::optional<double> possible;  // time at full memory bandwidth; absent below kMinBoundBytes and for torch
  bool judged = false;             // if all ranks copy at the same time; with a root, a single CPU may be the limit
};
struct OperationFigures {
  std::string name;
  int steps = 0;  // steps that were correct on all ranks
  std::uint64_t checked = 0;
  std::vector<SizeFigure> sizes;
  std::optional<std::string> cannot;  // message of the library for unsupported steps
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
  double load = 0;                     // of the machine, before the start
  bool busy = false;                   // load above two per CPU: speeds are reported but not judged
  std::uint64_t pair_bytes = 0;
  std::vector<OperationFigures> operations;
  std::vector<PairFigures> pairs;
  std::vector<Finding> findings;  // problems; empty: none
  std::uint64_t checked = 0;
  bool interrupted = false;
};

// An error means that it could not start. `log_line` gets occasional progress lines.
base::Result<ProofReport> ProveCollectives(const ProofPlan& plan, const base::Environment& environment,
                                           const std::function<void(const std::string&)>& log_line);

// ---- judgment; pure ----

// Bytes loaded and stored on the whole node for one call through shared memory. 0: unknown.
double BytesMoved(const bench::Operation& operation, int ranks, std::uint64_t bytes);

// A pair is slow if it has less than a third of the median bandwidth; the median requires at least three pairs.
struct SlowPairs {
  double median_bytes_per_second = 0;
  std::vector<PairFigures> slow;  // slowest first
  std::optional<int> rank;        // the rank that all slow pairs share, if most of its pairs are slow
};
SlowPairs FindSlowPairs(const std::vector<PairFigures>& pairs);

// The ranks that did not arrive. `states`: letters of /proc/PID/stat, '?' if unknown.
struct Absence {
  std::vector<int> ranks;
  bool inside = false;  // all ranks are inside the call: `ranks` are those that are stopped, or empty
};
Absence FindAbsent(const std::vector<int>& silent, const std::vector<RankProgress>& progress, int step,
                   const std::string& states);

// Interprets wrong values on these ranks.
Finding WrongValueFinding(const Step& step, const std::vector<std::pair<int, StepAnswer::Wrong>>& wrong, int ranks);

}  // namespace fulldeck::doctor
