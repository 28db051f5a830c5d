// Who waits for whom among the ranks of this node, and whether there is evidence that the awaited rank is stuck:
// nothing, *waiting* (reported as it is, never an alarm), or a hang with exactly one culprit, the evidence, the call
// that the others wait in and its number. docs/hangs.md describes the rules.
//
// Pure: it is shown what was read of every rank, moment after moment, and gives a verdict; it reads no clock, no file
// and no board, and sends nothing (launcher/hang_watch.h does). The same moments give the same verdicts.
//
// Ranks are counted as on the board, from 0 on this node; RunRank gives the number in the whole run. One thread.
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

// Whether a group of this name is told by somebody who looks at torch's own recorder now and then, and not by the group
// itself. The program behind it knows nothing of fulldeck.
inline bool IsRecorded(std::string_view group) {
  return group.starts_with("c10d ");
}

// What the kernel tells of a rank's process. All figures count from its start.
struct ProcessSample {
  char state = '?';               // of the main thread: R S D T t Z
  bool traced = false;            // somebody has a debugger on it
  base::Duration cpu{0};          // taken by it and its children, and waited for by its main thread
  base::Duration main_thread{0};  // the main thread's part of it
  std::uint64_t io_bytes = 0;     // read and written, by its children too
  std::uint64_t switches = 0;     // how often the main thread has begun to wait
  std::uint64_t page_faults = 0;
  std::string place;        // kernel function in which the main thread waits; empty: none
  std::string exact_place;  // with the arguments of its system call; "running"; equal: it has not moved
  ThreadWait wait;          // of the main thread
  // Of the other threads, less those that serve communication; both false where they were not looked at.
  bool all_in_locks = false;  // the main thread and all of them are in locks that only they can release
  // The main thread is in a futex and one of them waits for a file or socket, as the threads of an upload do; or it
  // may wait for a child that does.
  bool a_worker_in_io = false;
};

enum class RankLife { kThere, kStopped, kEnded, kFailed };

struct RankNow {
  RankLife life = RankLife::kThere;
  // Gloo ended it because a peer sent more than its own call takes: the call is another than the peer's, and was not
  // reported.
  bool sent_too_much = false;
  std::optional<ProcessSample> process;  // absent: not looked at
  std::optional<wire::Loop> loop;
  std::vector<wire::Collective> groups;
  std::optional<base::TimePoint> card_worked;  // when the rank's card was last seen at work for it; absent: not known
};

enum class VerdictKind {
  kNothing,
  kWaiting,    // reported, never an alarm
  kElsewhere,  // the same; all ranks of the group that are here wait: for a rank of another node
  kHang,       // the culprit is there and makes no progress
  kDesync,     // the culprit made another call than the others
  kStopped,    // the culprit was stopped by a signal
  kEnded,      // the culprit has exited, and the others wait for it
};

// Why a wait is called a hang.
enum class Evidence {
  kNone,
  kStopped,         // by a signal
  kDeadlocked,      // no thread can release another, or ranks wait for each other
  kMismatched,      // ranks are in different calls
  kLeftCollective,  // the culprit has exited
  kSpinning,        // CPU time grows, nothing else does, and the stack's functions stay the same
  kSleeping,        // a wait that is not I/O, for HangLimits::sleeping
  kBlockedIo,       // I/O that has not moved for HangLimits::io
};
// "left-collective"
const char* NameOf(Evidence evidence);

// A call as a rank made it.
struct CallSeen {
  std::string group;  // its name
  std::uint64_t group_id = 0;
  std::uint64_t sequence = 0;
  std::uint32_t operation = 0;  // 0: not told
  std::uint32_t datatype = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};
// "all_reduce #418 (float32 × 1000)"
std::string Describe(const CallSeen& call);

struct HangVerdict {
  VerdictKind kind = VerdictKind::kNothing;
  int culprit = -1;                       // local rank; -1 with kElsewhere, and while nobody is suspected
  Evidence evidence = Evidence::kNone;    // of an alarm
  bool io = false;                        // the culprit waits for a file or socket
  bool traced = false;                    // a debugger is attached to the culprit: never an alarm
  CallSeen awaited;                       // the call that the others wait in
  std::vector<int> waiting;               // who waits in it, or for one that does
  base::Duration waited{0};               // the longest of them
  std::optional<CallSeen> culprits_call;  // its last one in that group; with kDesync the one that it makes instead
  std::vector<int> also_missing;          // others that have not come either
  wire::Phase culprits_phase = wire::Phase::kNotReported;
  std::string place;  // kernel function that the culprit's main thread waits in
  ThreadWait wait;    // of the culprit's main thread

  bool alarm() const { return kind > VerdictKind::kElsewhere; }
};

// How long the others must have waited, and the evidence must have lasted. Each is the least; five times the median
// step where that is longer. The first two are for a verdict after 3 s by who looks four times a second.
struct HangLimits {
  base::Duration shown = std::chrono::milliseconds(2'650);  // of level waiting; of stopped, deadlocked, mismatched …
  base::Duration known = std::chrono::milliseconds(2'650);  // spinning, where the calls are reported by themselves
  base::Duration unknown = std::chrono::seconds(10);        // spinning, where torch's flight recorder is their source
  base::Duration first = std::chrono::seconds(120);         // spinning or sleeping, before the first step
  base::Duration slow = std::chrono::seconds(60);  // the same in a phase that may take long: compiling, a checkpoint …
  base::Duration sleeping = std::chrono::seconds(10);
  base::Duration all_in_call = std::chrono::seconds(30);  // nobody is missing from the call, and nobody does anything
  // Also where /proc does not show what the main thread waits for, and where the rank's card works.
  base::Duration io = std::chrono::seconds(120);
};

class HangJudge {
 public:
  explicit HangJudge(const wire::BoardRun& run, HangLimits limits = {}) : run_(run), limits_(limits) {}

  // A call has been under way for a while: the next moment is to tell about the processes too. Else they cost nothing.
  bool WantsProcesses() const { return stalled_; }
  // Whose threads the next moment is to show as well: local ranks that others wait for.
  const std::vector<int>& WantsThreadsOf() const { return wants_threads_; }
  // The rank that takes CPU time and shows nothing for it: two equal stacks decide. Answer with SawStack.
  std::optional<int> WantsStackOf() const { return wants_stack_; }
  // A stack is being taken: what the rank does for it is no progress. Comes before every SawStack.
  void OnStackRequested(int local_rank, base::TimePoint now);
  // `stack`: the same for the same functions on the main thread's stack; 0: it cannot be read.
  void SawStack(int local_rank, std::uint64_t stack, base::TimePoint now);

  // One RankNow for each rank of the board, in order. Moments follow each other by 0.1 to 1 s.
  HangVerdict Judge(base::TimePoint now, const std::vector<RankNow>& ranks);
  // Only whether the last calls of ranks have the same number and differ: for a run that has failed, whose calls have
  // ended with that failure.
  std::optional<HangVerdict> Differing(base::TimePoint now, const std::vector<RankNow>& ranks);

  int RunRank(int local_rank) const { return run_.first_rank + local_rank; }
  base::Duration MedianStep() const;

 private:
  struct Member {  // a rank in a group, as it was seen last
    wire::Collective call;
    base::TimePoint since{};    // its numbers stand so since
    base::TimePoint changed{};  // the call before began to be seen
    bool present = false;       // on the board now
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
  struct Known {                 // of one rank
    std::deque<Moment> moments;  // while something stalls
    std::deque<StackSeen> stacks;
    base::TimePoint polled{};
    base::TimePoint moved{};  // something on its part of the board changed last
    wire::Phase phase = wire::Phase::kNotReported;
    std::uint64_t step = 0;
  };
  using Group = std::map<int, Member>;  // by local rank
  struct Suspect {                      // somebody waits for it, and it waits for nobody
    int local_rank;
    std::uint64_t group;
    int waiter;
  };

  void Remember(base::TimePoint now, const std::vector<RankNow>& ranks);
  base::Duration Waits(int local_rank, const Member& member, const std::vector<RankNow>& ranks,
                       base::TimePoint now) const;
  // Nothing for a member of another node, and where nobody has told which rank it is.
  std::optional<int> LocalRankOf(const Group& group, std::uint32_t size, std::uint32_t rank) const;
  // The ranks of this node that have not begun the call in which `local_rank` is.
  std::vector<int> MissedBy(int local_rank, const Group& group) const;
  bool SomeAreElsewhere(const Group& group) const;
  // For spinning and sleeping, by what is known of the program and its phase.
  base::Duration LimitFor(const RankNow& rank, const Member& waiting) const;
  // What a rank's process did since a moment.
  struct Window {
    base::Duration span{0};  // from the first to the last moment
    double seconds = 0;      // excluding the time in which it printed its stack
    double busy = 0;         // seconds of CPU time
    double main_busy = 0;
    std::uint64_t io_bytes = 0;
    std::uint64_t faults = 0;
    std::uint64_t switches = 0;
    std::size_t places = 0;
    bool traced = false;
    bool io = false;           // some of the time its main thread
    bool workers_io = false;   // some of the time another thread for which the main thread may wait
    bool unknown = false;      // some of the time it is not known what it waits for
    bool sleeps = true;        // its main thread, all the time, in waits that may end by themselves
    bool all_in_locks = true;  // all the time
  };
  Window Since(const Known& known, base::TimePoint from) const;
  struct Finding {
    Evidence evidence = Evidence::kNone;
    base::Duration limit{0};  // that the others must have waited
    bool io = false;
  };
  Finding Examine(int local_rank, const RankNow& rank, base::TimePoint now, base::Duration limit,
                  base::Duration waited);
  Finding ExamineProcess(int local_rank, const RankNow& rank, base::TimePoint now, base::Duration limit,
                         base::Duration waited);
  Finding ExamineIdle(int local_rank, const RankNow& rank, base::TimePoint now, base::Duration limit) const;
  bool SpinsInPlace(int local_rank, base::TimePoint now, base::Duration limit, base::Duration waited);
  using Kinds = std::map<std::uint64_t, std::vector<int>>;  // local ranks by fingerprint of their call
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
  std::deque<base::Duration> steps_;  // the latest step times of any rank
  bool stalled_ = false;
  std::optional<int> wants_stack_;
  std::vector<int> wants_threads_;
};

// Whole sentences without "fulldeck:", the first one says it all. `names` are those of the local ranks: "rank 3 (node
// a, gcu 3, pid 4711)".
std::vector<std::string> Describe(const HangVerdict& verdict, const std::vector<std::string>& names, int first_rank,
                                  const std::string& node);

// What an event needs besides the verdict.
struct HangContext {
  std::vector<std::string> names;  // of the local ranks
  int first_rank = 0;
  std::string node;
};
// "hang", of an alarm: evidence, awaited_rank, waiting_ranks, call, call_number, group, waited_seconds, io …
events::Event HangEvent(const HangVerdict& verdict, const HangContext& context);
// "waiting": the same fields less the evidence. `where`: place of the awaited rank's main thread by its stack; may be
// empty.
events::Event WaitingEvent(const HangVerdict& verdict, const HangContext& context, const std::string& where);
// For the progress line: "ranks 0–2, 4–7 wait 5 s in all_reduce #418 for rank 3 (compute)".
std::string DescribeBriefly(const HangVerdict& verdict, int first_rank);

}  // namespace fulldeck::diagnosis
