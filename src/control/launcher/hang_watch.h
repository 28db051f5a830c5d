// Looks at the ranks of this host for the verdicts of diagnosis/hangs/hang_verdict.h and straggler_verdict.h: at the
// rank board every time, which costs microseconds, and at /proc only while a call is late. Passive: Poll is called on
// the supervisor's loop, kPollInterval apart; it waits for nothing and signals nobody.
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

// What /proc shows of a process and its descendants; nothing when it is gone. `descendants` are pids. `with_threads`:
// what its other threads wait for is read too.
std::optional<diagnosis::ProcessSample> SampleProcess(const base::SystemRoot& root, pid_t pid,
                                                      const std::vector<pid_t>& descendants, bool with_threads);

// The call of a rank that began last, of all its groups; nothing when it has made none.
std::optional<diagnosis::CallSeen> LatestCall(const wire::RankBoard& board, int local_rank);

class HangWatch {
 public:
  // When the card of a local rank was last seen at work for it; nothing if that is not known.
  using CardWorked = std::function<std::optional<base::TimePoint>(int local_rank)>;

  // The group must outlive it.
  HangWatch(const RankGroup& group, CardWorked card_worked)
      : group_(group), card_worked_(std::move(card_worked)), judge_(group.board().run()) {}

  diagnosis::HangVerdict Poll(base::TimePoint now);
  // The calls of a run that has just failed: who made another than the rest.
  std::optional<diagnosis::HangVerdict> FindDesync(base::TimePoint now);

  diagnosis::HangJudge& judge() { return judge_; }

  // Told once, when it is found.
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
  std::vector<std::vector<pid_t>> descendants_;  // by local rank
  base::TimePoint walked_{};
};

}  // namespace fulldeck::launcher
