// The rank processes of one attempt. Passive: it starts and signals them, and is told when one ends; it waits for
// nothing.
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
  bool has_no_log = false;  // no room on the disk at a restart: its output goes nowhere
  std::optional<diagnosis::RankExit> exit_status;
  bool stopped = false;  // by SIGSTOP and its like
  base::TimePoint ended{};
};

// Whether Gloo ended it because a peer sent more than its own call takes. Ranks make different calls then, and this
// one's may be the right one.
bool WasSentTooMuch(const Rank& rank);

class RankGroup {
 public:
  // Makes files and board; starts nothing.
  static base::Result<RankGroup> Prepare(const RunPlan& plan, const nodes::AttemptStart& start);

  // Starts every rank. On an error none runs any more, and the message names the rank.
  base::Result<void> Start(const RunPlan& plan, const std::optional<RunCgroup>& cgroup);

  // errno of the first rank that is not in the run's cgroup; 0 where all are, or there is none.
  int cgroup_error() const { return cgroup_error_; }

  const nodes::AttemptStart& start() const { return start_; }
  std::vector<Rank>& ranks() { return ranks_; }
  const std::vector<Rank>& ranks() const { return ranks_; }
  const wire::RankBoard& board() const { return board_; }

  // nullptr when no rank has, or had, that pid.
  Rank* Find(pid_t pid);
  int alive() const;
  // The status is as waitpid gives it.
  void Ended(Rank& rank, int wait_status, int order, bool after_stop, base::TimePoint now);
  void StoppedOrContinued(Rank& rank, bool stopped, base::TimePoint now);
  // Puts on the board whether the rank's card works.
  void ShowCardUse(int local_rank, wire::CardUse use);

  // To the process group of every living rank. A stopped one is continued, so that it can act on it.
  void Signal(int signal_number) const;

  // All that failed, for RootCause; error files are read.
  std::vector<diagnosis::RankExit> Failures() const;
  // Every rank as it ended and as it stands on the board, for RootOf.
  std::vector<diagnosis::RankFacts> Facts() const;
  // The furthest step that any rank has put on the board; absent when none has.
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
