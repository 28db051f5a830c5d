// Decides which ranks of this node wait for which, and whether there is evidence that the awaited rank is stuck. The
// verdict is nothing, *waiting* (reported, but never an alarm), or a hang with exactly one culprit, the evidence, and
// the collective that the others wait in. The rules are in docs/hangs.md.
//
// Pure: takes samples of every rank in order of time and returns verdicts. It reads no clock, file or board and sends
// nothing (launcher/hang_watch.h does). The same samples give the same verdicts.
//
// Ranks are numbered as on the board, from 0 on this node; RunRank returns the global rank. Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "diagnosis/hangs/thread_wait.h"
#include "events/event.h"
#include "wire/rank_board.h"

namespace fulldeck::diagnosis {

// Whether the calls of a group with this name are sampled from torch's flight recorder rather than reported by the
// group itself. The program then does not know fulldeck.
inline bool IsRecorded(std::string_view group) {
  return group.starts_with("c10d ");
}

// What the kernel reports about a rank's process. All counters start at its start.
struct ProcessSample {
  char state = '?';       // main thread: R S D T t Z
  bool traced = false;    // a debugger is attached
  base::Duration cpu{0};  // CPU time of it and its children, plus the time that its main thread waited for a CPU
  base::Duration main_thread{0};  // the main thread's share of `cpu`
  std::uint64_t io_bytes = 0;     // read and written, including its children
  std::uint64_t switches = 0;     // how often the main thread has started to wait
  std::uint64_t page_faults = 0;
  std::string place;        // kernel function in which the main thread waits; empty: none
  std::string exact_place;  // with system call arguments, or "running"; equal values: it has not moved
  ThreadWait wait;          // main thread
  // The other threads, except those that serve communication; both are false if they were not sampled.
  // every thread, including the main thread, is in a lock that only these threads can release
  bool all_in_locks = false;
  // The main thread waits in a futex while another thread waits for a file or socket, as the threads of an upload do;
  // or the main thread may wait for a child that does I/O.
  bool a_worker_in_io = false;
};

enum class RankLife { kThere, kStopped, kEnded, kFailed };

struct RankNow {
  RankLife life = RankLife::kThere;
  // Gloo ended it because a peer sent more data than its own collective takes: the collective differs from the peer's
  // and was not reported.
  bool sent_too_much = false;
  std::optional<ProcessSample> process;  // absent: not sampled
  std::optional<wire::Loop> loop;
  std::vector<wire::Collective> groups;
  std::optional<base::TimePoint> card_worked;  // when the rank's card was last seen working for it; absent: unknown
};

enum class VerdictKind {
  kNothing,
  kWaiting,    // reported, never an alarm
  kElsewhere,  // the same; all ranks of the group on this node wait for a rank of another node
  kHang,       // the culprit is alive and makes no progress
  kDesync,     // the culprit made a different collective than the others
  kStopped,    // the culprit was stopped by a signal
  kEnded,      // the culprit has exited, and the others wait for it
};

// Why a wait is classified as a hang.
enum class Evidence {
  kNone,
  kStopped,         // by a signal
  kDeadlocked,      // no thread can release another, or ranks wait for each other
  kMismatched,      // ranks are in different collectives
  kLeftCollective,  // the culprit has exited
  kSpinning,        // CPU time grows, nothing else changes, and the stack has the same functions
  kSleeping,        // a wait that is not I/O, for HangLimits::sleeping
  kBlockedIo,       // I/O without progress for HangLimits::io
};
// "left-collective"
const char* NameOf(Evidence evidence);

// A collective as a rank made it.
struct CallSeen {
  std::string group;  // its name
  std::uint64_t group_id = 0;
  std::uint64_t sequence = 0;
  std::uint32_t operation = 0;  // 0: not reported
  std::uint32_t datatype = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};
// "all_reduce #418 (float32 × 1000)"
std::string Describe(const CallSeen& call);

struct HangVerdict {
  VerdictKind kind = VerdictKind::kNothing;
  int culprit = -1;                       // local rank; -1 with kElsewhere and without a suspect
  Evidence evidence = Evidence::kNone;    // of an alarm
  bool io = false;                        // the culprit waits for a file or socket
  bool traced = false;                    // a debugger is attached to the culprit: never an alarm
  CallSeen awaited;                       // the collective that the others wait in
  std::vector<int> waiting;               // the ranks that wait in it, or for a rank that does
  base::Duration waited{0};               // the longest of them
  std::optional<CallSeen> culprits_call;  // its last one in that group; with kDesync, the one that it makes instead
  std::vector<int> also_missing;          // other ranks that have not arrived either
  wire::Phase culprits_phase = wire::Phase::kNotReported;
  std::string place;  // kernel function that the culprit's main thread waits in
  ThreadWait wait;    // of the culprit's main thread

  bool alarm() const { return kind > VerdictKind::kElsewhere; }
};

// Minimum time that the others must have waited and the evidence must have lasted; five times the median step if that
// is longer. `shown` and `known` are chosen so that a caller that polls four times per second reports after 3 s.
struct HangLimits {
  // minimum for reporting a wait; stopped, deadlocked, mismatched …
  base::Duration shown = std::chrono::milliseconds(2'650);
  base::Duration known = std::chrono::milliseconds(2'650);  // spinning, if the groups report their own calls
  base::Duration unknown = std::chrono::seconds(10);  // spinning, if calls are sampled from torch's flight recorder
  base::Duration first = std::chrono::seconds(120);   // spinning or sleeping, before the first step
  base::Duration slow = std::chrono::seconds(60);  // the same in a phase that may take long: compiling, a checkpoint …
  base::Duration sleeping = std::chrono::seconds(10);
  base::Duration all_in_call = std::chrono::seconds(30);  // no rank is missing from the call, and none is active
  // Also used if /proc does not show what the main thread waits for, or if the rank's card works.
  base::Duration io = std::chrono::seconds(120);
};

class HangJudge {
 public:
  explicit HangJudge(const wire::BoardRun& run, HangLimits limits = {}) : run_(run), limits_(limits) {}

  // A collective has been in flight for a while: the next sample must include the processes. Otherwise they need not be
  // read.
  bool WantsProcesses() const { return stalled_; }
  // Local ranks that others wait for: the next sample must include their threads.
  const std::vector<int>& WantsThreadsOf() const { return wants_threads_; }
  // A rank that uses CPU time without visible progress: two equal stacks decide. Answer with SawStack.
  std::optional<int> WantsStackOf() const { return wants_stack_; }
  // A stack is being requested: activity that this causes in the rank is not progress. Call it before every SawStack.
  void OnStackRequested(int local_rank, base::TimePoint now);
  // `stack`: fingerprint of the functions on the main thread's stack; 0: not readable.
  void SawStack(int local_rank, std::uint64_t stack, base::TimePoint now);

  // `ranks`: one per rank of the board, in order. Samples must be 0.1 to 1 s apart.
  HangVerdict Judge(base::TimePoint now, const std::vector<RankNow>& ranks);
  // Only checks whether the last collectives of ranks have the same number but differ. For a run that has failed, whose
  // collectives have ended with the failure.
  std::optional<HangVerdict> Differing(base::TimePoint now, const std::vector<RankNow>& ranks);

  int RunRank(int local_rank) const { return run_.first_rank + local_rank; }
  base::Duration MedianStep() const;

 private:
  struct Member {  // a rank in a group, as last seen
    wire::Collective call;
    base::TimePoint since{};    // when its counters last changed
    base::TimePoint changed{};  // when the previous call was first seen
    bool present = false;       // currently on the board
  };
  struct Moment {
    base::TimePoint at;
    ProcessSample process;
  };
  struct StackSeen {
    base::TimePoint polled;
    base::TimePoint seen;
    std::uint64_t stack;
  };
  struct Known {                 // per rank
    std::deque<Moment> moments;  // while a collective is stalled
    std::deque<StackSeen> stacks;
    base::TimePoint polled{};
    base::TimePoint moved{};  // when its record on the board last changed
    wire::Phase phase = wire::Phase::kNotReported;
    std::uint64_t step = 0;
  };
  using Group = std::map<int, Member>;  // by local rank
  struct Suspect {                      // another rank waits for it, and it waits for none
    int local_rank;
    std::uint64_t group;
    int waiter;
  };

  void Remember(base::TimePoint now, const std::vector<RankNow>& ranks);
  base::Duration Waits(int local_rank, const Member& member, const std::vector<RankNow>& ranks,
                       base::TimePoint now) const;
  // nullopt for a member of another node, or if its rank is unknown.
  std::optional<int> LocalRankOf(const Group& group, std::uint32_t size, std::uint32_t rank) const;
  // The ranks of this node that have not started the collective that `local_rank` is in.
  std::vector<int> MissedBy(int local_rank, const Group& group) const;
  bool SomeAreElsewhere(const Group& group) const;
  // The limit for spinning and sleeping, given what is known about the program and its phase.
  base::Duration LimitFor(const RankNow& rank, const Member& waiting) const;
  // Activity of a rank's process since a sample.
  struct Window {
    base::Duration span{0};  // from the first to the last sample
    double seconds = 0;      // excluding the time in which it printed its stack
    double busy = 0;         // seconds of CPU time
    double main_busy = 0;
    std::uint64_t io_bytes = 0;
    std::uint64_t faults = 0;
    std::uint64_t switches = 0;
    std::size_t places = 0;
    bool traced = false;
    bool io = false;           // in some samples, main thread
    bool workers_io = false;   // in some samples, another thread that the main thread may wait for
    bool unknown = false;      // in some samples it is unknown what it waits for
    bool sleeps = true;        // in all samples the main thread is in a wait that may end by itself
    bool all_in_locks = true;  // in all samples
  };
  Window Since(const Known& known, base::TimePoint from) const;
  struct Finding {
    Evidence evidence = Evidence::kNone;
    base::Duration limit{0};  // minimum wait of the others
    bool io = false;
  };
  Finding Examine(int local_rank, const RankNow& rank, base::TimePoint now, base::Duration limit,
                  base::Duration waited);
  Finding ExamineProcess(int local_rank, const RankNow& rank, base::TimePoint now, base::Duration limit,
                         base::Duration waited);
  Finding ExamineIdle(int local_rank, const RankNow& rank, base::TimePoint now, base::Duration limit) const;
  bool SpinsInPlace(int local_rank, base::TimePoint now, base::Duration limit, base::Duration waited);
  using Kinds = std::map<std::uint64_t, std::vector<int>>;  // local ranks by fingerprint of their collective
  std::size_t AddCallThatEndedItsRank(const Group& group, const std::vector<RankNow>& ranks, Kinds& kinds) const;
  std::optional<HangVerdict> Mismatch(const std::vector<RankNow>& ranks, base::TimePoint now, bool after_failure) const;
  HangVerdict WithEvidence(HangVerdict verdict, const std::vector<Suspect>& suspects, const std::vector<RankNow>& ranks,
                           base::TimePoint now, base::Duration shown);
  HangVerdict WithoutSuspect(HangVerdict verdict, std::uint64_t id, const std::map<int, std::vector<int>>& waits_for,
                             const std::vector<RankNow>& ranks, base::TimePoint now, base::Duration shown);

  wire::BoardRun run_;
  HangLimits limits_;
  std::map<std::uint64_t, Group> groups_;
  std::vector<Known> known_;
  std::deque<base::Duration> steps_;  // the most recent step times of any rank
  bool stalled_ = false;
  std::optional<int> wants_stack_;
  std::vector<int> wants_threads_;
};

// Complete sentences without "fulldeck:"; the first one is a summary. `names`: of the local ranks, "rank 3 (node a, gcu
// 3, pid 4711)".
std::vector<std::string> Describe(const HangVerdict& verdict, const std::vector<std::string>& names, int first_rank,
                                  const std::string& node);

// Context that an event needs in addition to the verdict.
struct HangContext {
  std::vector<std::string> names;  // of the local ranks
  int first_rank = 0;
  std::string node;
};
// "hang", for an alarm: evidence, awaited_rank, waiting_ranks, call, call_number, group, waited_seconds, io …
events::Event HangEvent(const HangVerdict& verdict, const HangContext& context);
// "waiting": the same fields without the evidence. `where`: where the awaited rank's main thread is, from its stack;
// may be empty.
events::Event WaitingEvent(const HangVerdict& verdict, const HangContext& context, const std::string& where);
// For the progress line: "ranks 0–2, 4–7 wait 5 s in all_reduce #418 for rank 3 (compute)".
std::string DescribeBriefly(const HangVerdict& verdict, int first_rank);

}  // namespace fulldeck::diagnosis
