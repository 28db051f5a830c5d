// The current state of a run, combined from its entry, its board and /proc, for ps and top. Reads only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "job/runs/run_registry.h"
#include "wire/rank_board.h"

namespace fulldeck::job {

struct RankStatus {
  int rank = 0;  // in the whole run
  int local_rank = 0;
  std::optional<int> pid;
  std::string state;  // "running", "starting", "stopped", "exited with code 1", "killed by signal 9", "gone"
  bool alive = false;
  std::optional<RegisteredCard> card;  // absent: on the node's CPUs
  std::optional<wire::Loop> loop;      // absent: the program reports none
  std::optional<std::uint64_t> resident_bytes;
  // From two readings of the same process; absent in the first.
  std::optional<double> cpu_percent;  // of one CPU: 400 % is four CPUs
  std::optional<double> samples_per_second;
};

struct RunStatus {
  RunRegistry::Entry entry;
  std::string state;  // "running", "starting", "left behind, 3 processes alive", "running, 2 of 8 ranks ended"
  std::vector<RankStatus> ranks;      // of this node, by local rank
  std::optional<std::uint64_t> step;  // the lowest of the ranks that report one
  std::optional<std::uint64_t> total_steps;
  std::optional<std::string> board_problem;  // why the board could not be read
};

// Keeps the last measurements of each rank to compute rates. Not thread-safe.
class RunStatusReader {
 public:
  explicit RunStatusReader(const base::Clock& clock = base::SteadyClock::Instance()) : clock_(clock) {}

  RunStatus Read(const RunRegistry::Entry& entry);

 private:
  struct Sample {
    std::uint64_t start_ticks = 0;
    base::TimePoint at;
    std::uint64_t cpu_ticks = 0;
    std::optional<std::uint64_t> samples;
  };
  void FillUsage(RankStatus& rank, const wire::ProcessIdentity& process);

  const base::Clock& clock_;
  std::map<int, Sample> samples_;  // by pid
};

}  // namespace fulldeck::job
