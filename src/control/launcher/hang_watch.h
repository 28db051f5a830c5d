// Samples the ranks of this node for the judges in diagnosis/hangs/hang_verdict.h and straggler_verdict.h. Reads the
// rank board at every poll, which costs microseconds, and /proc only while a collective is late. Passive: Poll is
// called on the supervisor's loop every kPollInterval; it neither blocks nor sends signals.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files/system_root.h"
#include "diagnosis/hangs/hang_verdict.h"
#include "diagnosis/hangs/straggler_verdict.h"
#include "launcher/rank_group.h"

namespace fulldeck::launcher {

inline constexpr std::chrono::milliseconds kPollInterval{250};

// What /proc shows of a process and its descendants; nullopt if the process is gone. `descendants`: pids.
// `with_threads`: also read what its other threads wait for.
std::optional<diagnosis::ProcessSample> SampleProcess(const base::SystemRoot& root, pid_t pid,
                                                      const std::vector<pid_t>& descendants, bool with_threads);

// The collective that a rank began last, over all its groups; nullopt if it has made none.
std::optional<diagnosis::CallSeen> LatestCall(const wire::RankBoard& board, int local_rank);

class HangWatch {
 public:
  // When the card of a local rank was last seen working for that rank; nullopt if unknown.
  using CardWorked = std::function<std::optional<base::TimePoint>(int local_rank)>;

  // `group` must outlive this object.
  HangWatch(const RankGroup& group, CardWorked card_worked)
      : group_(group), card_worked_(std::move(card_worked)), judge_(group.board().run()) {}

  diagnosis::HangVerdict Poll(base::TimePoint now);
  // For a run that has just failed: which rank made a different collective than the others.
  std::optional<diagnosis::HangVerdict> FindDesync(base::TimePoint now);

  diagnosis::HangJudge& judge() { return judge_; }

  // A straggler that was not returned before; each one is returned once.
  std::optional<diagnosis::Straggler> NewStraggler() { return std::exchange(new_straggler_, std::nullopt); }
  const std::optional<diagnosis::Straggler>& straggler() const { return stragglers_.last(); }

 private:
  std::vector<diagnosis::RankNow> ReadRanks() const;
  void AddProcesses(std::vector<diagnosis::RankNow>& ranks, base::TimePoint now);

  const RankGroup& group_;
  CardWorked card_worked_;
  base::SystemRoot root_;
  diagnosis::HangJudge judge_;
  diagnosis::StragglerJudge stragglers_;
  std::optional<diagnosis::Straggler> new_straggler_;
  std::vector<std::vector<pid_t>> descendants_;  // indexed by local rank
  base::TimePoint walked_{};
};

}  // namespace fulldeck::launcher
