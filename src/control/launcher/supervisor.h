// The supervisor: parent of the ranks; one thread, one loop. It starts an attempt, watches it, stops all ranks at the
// first failure, reports it, restarts if configured, and cleans up. Decisions are made by pure functions
// (restart_policy.h, root_cause.h, card_usage.h); this class carries them out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "diagnosis/card_usage.h"
#include "diagnosis/hangs/stack_collection.h"
#include "diagnosis/known_failures/log_admissions.h"
#include "diagnosis/run_summary.h"
#include "diagnosis/script_faults.h"
#include "diagnosis/silent_faults.h"
#include "events/event_log.h"
#include "job/runs/run_registry.h"
#include "launcher/card_watch.h"
#include "launcher/hang_watch.h"
#include "launcher/launcher_proxy.h"
#include "launcher/rank_group.h"
#include "launcher/restart_policy.h"
#include "launcher/run_cgroup.h"
#include "launcher/run_plan.h"
#include "launcher/signal_deduplicator.h"
#include "logs/log_follower.h"
#include "nodes/node_group.h"

namespace fulldeck::launcher {

// Time that the kernel needs to end a process after SIGKILL. A process that still exists afterwards cannot be killed.
inline constexpr std::chrono::milliseconds kKillTimeout{1'500};

class Supervisor {
 public:
  Supervisor(base::EventLoop& loop, std::unique_ptr<RunPlan> plan, CrashCleanupInfo& cleanup_info,
             base::UniqueFd started_notice);
  ~Supervisor();

  // Blocks until the run is over. Returns the exit code of the launcher.
  int Run();

 private:
  enum class Phase { kRendezvous, kRunning, kStopping, kPausing, kOver };

  base::Result<void> Prepare();
  base::Result<void> WatchSignals();
  void JoinNodes();
  void StartAlone(int attempt);
  void StartAttempt(const nodes::AttemptStart& start);
  base::Result<void> FollowRank(const Rank& rank);
  void WatchCards();
  void Register();

  void OnSignal(int signal_number);
  void OnUserSignal(int signal_number, bool from_proxy);
  void ForwardSignal(int signal_number);
  void Reap();
  void OnRankEnded(Rank& rank, int wait_status);
  bool OnlyStopSignalsKilled() const;
  void BeginStop(int signal_number, std::chrono::milliseconds grace);
  void KillEverything();
  void KillAgain();
  void GiveUpKilling();
  void CheckAllGone();
  void AttemptOver();
  void DecideAlone();
  diagnosis::CardProgress ProgressOn(const std::vector<int>& local_ranks) const;
  std::optional<int> RankOfProcess(int pid, std::uint64_t start_ticks);
  void OnCardRound();
  void OnCardWatchEnded();
  void ReportIdleCards(const std::vector<diagnosis::CardVerdict>& verdicts);
  bool WaitForLastReading();
  void EndCardWatch(bool ended_well);
  void ShowCardUsage();
  void WatchHangs();
  void EndHangWatch();
  void CheckForHangs();
  void RememberWait(const diagnosis::HangVerdict& verdict);
  bool IsOver(const diagnosis::HangVerdict& alarm, const diagnosis::HangVerdict& now_seen);
  bool IsStillStopped(const diagnosis::HangVerdict& verdict) const;
  void NoticeContinuedRanks();
  std::vector<diagnosis::StackTarget> StackTargets() const;
  void CollectStacks(std::vector<diagnosis::StackTarget> targets,
                     std::function<void(const std::vector<diagnosis::RankStacks>&)> then);
  // `then` gets a description of where the rank's main thread is; it is not called if the rank is gone.
  void SampleStackOf(int local_rank, std::function<void(const std::string& place)> then);
  void ReportWaiting(const diagnosis::HangVerdict& verdict);
  diagnosis::HangContext HangContextNow() const;
  void RaiseHangAlarm(const diagnosis::HangVerdict& verdict);
  void LogStacks(const diagnosis::HangVerdict& verdict, const std::vector<diagnosis::RankStacks>& ranks);
  void ActOnHang();
  void ReportDesync();
  // After Gloo ended a rank for a message of the wrong size: whether other ranks may still report their collectives.
  bool SomeMayReportCalls();
  void StopAfterFailure();
  std::string DescribeLastCall(const Rank& rank) const;
  void Tick();
  void KeepLeases();
  void NameSilentFaults(bool ended_well);
  // For ranks whose log files could not be written; `last`: with the final count.
  void ReportLostLogs(bool last);
  // `from_rank`: the code is a rank's own exit code, not a verdict of fulldeck.
  void Finish(int exit_code, bool from_rank = false);

  void LogLine(const std::string& line);
  // Prints the event's message and records it. Everything that tests check must go through here.
  void Report(const events::Event& event);
  // Appends to events.jsonl only, for events that the console shows by other means.
  void Record(events::Event event);
  base::Result<void> OpenEventLog();
  std::string NameOf(const Rank& rank) const;
  nodes::NodeFailure LocalFailure() const;
  std::optional<diagnosis::Root> FindRoot() const;
  int ExitCodeOf(const diagnosis::Root& root) const;
  std::string DescribeRoot(const diagnosis::Root& root) const;
  void ReportFailure();
  void CopyErrorFile(const Rank& rank) const;

  base::EventLoop& loop_;
  std::unique_ptr<RunPlan> plan_;
  CrashCleanupInfo& cleanup_info_;
  base::UniqueFd started_notice_;  // in a detached run, until the ranks have started
  job::RunRegistry registry_;
  job::RunRecord record_;
  std::optional<RunCgroup> cgroup_;
  MemoryPressure memory_before_;
  std::unique_ptr<logs::LogFollower> logs_;
  events::EventLog event_log_;
  std::unique_ptr<nodes::NodeGroup> nodes_;
  std::optional<net::MasterPort> port_;
  std::optional<RankGroup> group_;
  std::optional<diagnosis::CardUsage> card_usage_;  // of this attempt, until its verdict was given
  std::vector<std::vector<int>> card_ranks_;        // local ranks of each of its cards
  // processes that were seen in a rank's tree: pid, start time
  std::map<std::pair<int, std::uint64_t>, int> rank_of_process_;
  std::vector<bool> idle_reported_, idle_later_reported_;  // by card
  bool all_cards_worked_ = false;                          // was reported
  enum class LastReading { kNotRequested, kRequested, kDone };
  LastReading last_reading_ = LastReading::kNotRequested;
  std::unique_ptr<CardWatch> card_watch_;
  std::unique_ptr<HangWatch> hang_watch_;
  std::optional<diagnosis::HangVerdict> hang_alarm_;  // reported and not over yet
  base::TimePoint hang_alarm_at_{};
  std::optional<base::TimePoint> alarm_quiet_since_;  // no rank has been waiting since then
  std::optional<diagnosis::LastWait> last_wait_;      // of this attempt, before any rank failed
  std::optional<diagnosis::HangVerdict> waiting_;     // the stall whose event "waiting" was or is being reported
  struct SampledPlace {
    int local_rank = -1;
    base::TimePoint at{};
    std::string place;
  };
  SampledPlace sampled_place_;  // the latest
  std::unique_ptr<diagnosis::StackCollection> stacks_;
  std::optional<diagnosis::HangVerdict> desync_;          // ranks that made different collectives, of this attempt
  std::vector<std::uint64_t> lost_log_bytes_;             // by local rank, as last reported
  bool collecting_ = false;                               // stacks_ has not completed yet
  std::string waiting_text_;                              // for the progress line
  std::optional<diagnosis::SilentFaults> silent_faults_;  // of this attempt
  std::optional<diagnosis::ScriptFaults> script_faults_;  // of this attempt
  std::optional<diagnosis::LogAdmissions> admissions_;    // of this attempt
  std::set<std::string> checks_off_;                      // codes of silent errors that are not reported
  int silent_errors_ = 0;                                 // warnings of this attempt, for --strict
  diagnosis::RunSummary summary_;                         // of this attempt

  Phase phase_ = Phase::kRendezvous;
  base::TimePoint attempt_began_{};
  base::TimePoint stop_began_{};
  base::TimePoint kill_began_{};
  std::vector<AttemptRecord> attempts_;
  int turn_ = 0;         // counts calls of Reap, to order exits
  int user_signal_ = 0;  // the signal with which the user stopped the run
  bool proxy_died_ = false;
  bool idle_failed_ = false;
  bool hung_ = false;  // this attempt is stopped because of a hang
  bool could_not_start_ = false;
  bool crash_loop_ = false;  // multi-node: as reported by the coordinator
  bool killed_ = false;      // SIGKILL has been sent to all processes
  bool swept_ = false;       // processes that outlived the ranks were asked to exit
  bool gave_up_killing_ = false;
  struct UserSignal {  // SIGUSR1, SIGUSR2
    SignalDeduplicator deduplicator;
    base::EventLoop::Id timer = 0;
    bool warned = false;
  };
  UserSignal user_signals_[2];
  std::optional<nodes::NodeFailure> elsewhere_;  // the root cause is on another node
  base::EventLoop::Id kill_timer_ = 0;
  base::EventLoop::Id last_reading_timer_ = 0;
  base::EventLoop::Id hang_timer_ = 0;
  base::EventLoop::Id stacks_timer_ = 0;
  base::EventLoop::Id calls_timer_ = 0;  // while other ranks may report their collectives
  std::optional<base::TimePoint> calls_awaited_since_;
  // a rank died of a stop signal that may also be on its way to the launcher
  base::EventLoop::Id direct_signal_timer_ = 0;
  int exit_code_ = 0;
};

}  // namespace fulldeck::launcher
