// The rank processes of one attempt. Passive: starts and signals them, and is notified when one ends; never blocks.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "diagnosis/exit_status.h"
#include "diagnosis/root_cause.h"
#include "launcher/run_cgroup.h"
#include "launcher/run_directory.h"
#include "launcher/run_plan.h"
#include "nodes/node_group.h"
#include "wire/rank_board.h"

namespace fulldeck::launcher {

struct Rank {
  int local_rank = 0;
  int rank = 0;  // in the whole run
  pid_t pid = -1;
  RankFiles files;
  bool has_no_log = false;  // the disk was full at a restart: its output is discarded
  std::optional<diagnosis::RankExit> exit_status;
  bool stopped = false;  // by SIGSTOP, SIGTSTP or the like
  base::TimePoint ended{};
};

// Whether Gloo ended the rank because a peer sent more data than its own collective takes. The ranks then make
// different collectives, and this rank's may be the correct one.
bool WasSentTooMuch(const Rank& rank);

class RankGroup {
 public:
  // Creates the files and the rank board; starts no process.
  static base::Result<RankGroup> Prepare(const RunPlan& plan, const nodes::AttemptStart& start);

  // Starts every rank. On error no rank is left running, and the message names the rank that failed.
  base::Result<void> Start(const RunPlan& plan, const std::optional<RunCgroup>& cgroup);

  // errno of the first rank that could not be placed in the run's cgroup; 0 if all were, or if there is no cgroup.
  int cgroup_error() const { return cgroup_error_; }

  const nodes::AttemptStart& start() const { return start_; }
  std::vector<Rank>& ranks() { return ranks_; }
  const std::vector<Rank>& ranks() const { return ranks_; }
  const wire::RankBoard& board() const { return board_; }

  // nullptr if no rank has or had that pid.
  Rank* Find(pid_t pid);
  int alive() const;
  // `wait_status`: as returned by waitpid.
  void Ended(Rank& rank, int wait_status, int order, bool after_stop, base::TimePoint now);
  void StoppedOrContinued(Rank& rank, bool stopped, base::TimePoint now);
  // Writes to the board whether the rank's card works.
  void ShowCardUse(int local_rank, wire::CardUse use);

  // Signals the process group of every living rank. A stopped rank is continued so that it can handle the signal.
  void Signal(int signal_number) const;

  // All failed ranks, for RootCause. Reads their error files.
  std::vector<diagnosis::RankExit> Failures() const;
  // Every rank with its exit status and its record on the board, for RootOf.
  std::vector<diagnosis::RankFacts> Facts() const;
  // The highest step that any rank has reported on the board; nullopt if none has.
  std::optional<std::uint64_t> BestStep() const;

 private:
  explicit RankGroup(wire::RankBoard board) : board_(std::move(board)) {}
  void ShowOnBoard(const RunPlan& plan, const Rank& rank, base::TimePoint now);
  void UpdateBoard(const Rank& rank, wire::RankState state, int wait_status, base::TimePoint now);

  nodes::AttemptStart start_;
  wire::RankBoard board_;
  std::vector<Rank> ranks_;
  int cgroup_error_ = 0;
};

}  // namespace fulldeck::launcher
