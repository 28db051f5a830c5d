#include "diagnosis/hangs/hang_verdict.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/text.h"

namespace fulldeck::diagnosis {
namespace {

using base::Duration;
using base::TimePoint;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Ranks that a test moves through time, sampled every 0.25 s as by the launcher.
class Hangs : public ::testing::Test {
 protected:
  static constexpr int kRanks = 8;

  Hangs() { Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks}); }

  void Use(const wire::BoardRun& run) {
    judge_.emplace(run);
    ranks_.assign(static_cast<std::size_t>(run.local_ranks), RankNow());
    for (int i = 0; i < run.local_ranks; ++i) Sleeps(i);
  }

  RankNow& Rank(int i) { return ranks_[static_cast<std::size_t>(i)]; }

  wire::Collective& Group(int i, const std::string& name = "world", std::uint64_t id = 7, std::uint32_t size = kRanks) {
    for (wire::Collective& call : Rank(i).groups) {
      if (call.group == id) return call;
    }
    wire::Collective call;
    call.group = id;
    call.name = name;
    call.size = size;
    call.rank = static_cast<std::uint32_t>(i);
    call.fingerprint = 1;
    Rank(i).groups.push_back(call);
    return Rank(i).groups.back();
  }

  // The rank is in the collective number `sequence`.
  void In(int i, std::uint64_t sequence, std::uint32_t operation = FULLDECK_BOARD_ALL_REDUCE,
          std::uint64_t fingerprint = 1) {
    wire::Collective& call = Group(i);
    call.sequence = sequence;
    call.completed = sequence - 1;
    call.operation = operation;
    call.datatype = FULLDECK_BOARD_FLOAT32;
    call.count = 1000;
    call.fingerprint = fingerprint;
    call.since_ns = static_cast<std::uint64_t>(now_.time_since_epoch().count());
  }
  // The rank has completed that collective and is in none.
  void Did(int i, std::uint64_t sequence) {
    In(i, sequence);
    Group(i).completed = sequence;
  }
  void AllIn(std::uint64_t sequence) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) In(static_cast<int>(i), sequence);
  }
  void Record() {  // the groups are sampled by torch's recorder
    for (RankNow& rank : ranks_) {
      for (wire::Collective& call : rank.groups) call.name = "c10d world";
    }
  }

  // What the rank does from now on, between two samples.
  void Sleeps(int i, const std::string& place = "202 0x1") {
    moves_[i] = [place](ProcessSample& process) {
      process.state = 'S';
      process.exact_place = place;
      process.wait = {WaitKind::kSleep, "clock_nanosleep", ""};
    };
  }
  // Its main thread waits like this, and nothing else happens.
  void Waits(int i, const ThreadWait& wait, char state = 'S') {
    moves_[i] = [=](ProcessSample& process) {
      process.state = state;
      process.exact_place = wait.call;
      process.wait = wait;
    };
  }
  void Computes(int i, std::uint64_t faults = 0, std::uint64_t bytes = 0, char state = 'R') {
    moves_[i] = [=](ProcessSample& process) {
      process.state = state;
      process.wait = {WaitKind::kRunning, "", ""};
      process.cpu += milliseconds(200);
      process.main_thread += milliseconds(200);
      process.page_faults += faults;
      process.io_bytes += bytes;
      process.exact_place = "running";
    };
  }
  void SetLoop(int i, wire::Phase phase, std::uint64_t step = 5, Duration step_time = milliseconds(100)) {
    wire::Loop loop;
    loop.phase = phase;
    loop.step = step;
    loop.step_at_ns = step > 0 ? 1 : 0;
    loop.last_step_ns = static_cast<std::uint64_t>(step_time.count());
    Rank(i).loop = loop;
  }

  // The first alarm within that many seconds, or the last verdict.
  HangVerdict Run(double for_seconds) {
    HangVerdict verdict;
    for (const TimePoint end = now_ + Duration(static_cast<std::int64_t>(for_seconds * 1e9)); now_ < end;) {
      now_ += milliseconds(250);
      const bool wanted = judge_->WantsProcesses();
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        if (const auto move = moves_.find(static_cast<int>(i)); move != moves_.end())
          move->second(processes_[static_cast<int>(i)]);
        if (wanted) ranks_[i].process = processes_[static_cast<int>(i)];
      }
      verdict = judge_->Judge(now_, ranks_);
      if (const auto suspect = judge_->WantsStackOf()) {
        ++requests_;
        // Printing a stack costs memory, time and I/O.
        processes_[*suspect].page_faults += 2'000;
        processes_[*suspect].io_bytes += 100'000;
        judge_->OnStackRequested(*suspect, now_);
        judge_->SawStack(*suspect, stack_ ? stack_(requests_) : 11, now_);
      }
      if (verdict.alarm()) return verdict;
    }
    return verdict;
  }

  TimePoint now_{seconds(1'000)};
  std::optional<HangJudge> judge_;
  std::vector<RankNow> ranks_;
  std::map<int, ProcessSample> processes_;
  std::map<int, std::function<void(ProcessSample&)>> moves_;
  std::function<std::uint64_t(int)> stack_;
  int requests_ = 0;
};

TEST_F(Hangs, ARankWhoseCardWorksIsNotStuckForTwoMinutes) {
  const auto card_works = [this] { Rank(3).card_worked = now_; };
  const auto begin = [this] {  // all but rank 3 are in collective 20
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    processes_.clear();
    now_ += seconds(1'000);
    AllIn(19);
    Run(0.5);
    AllIn(20);
    for (int i = 0; i < kRanks; ++i) SetLoop(i, wire::Phase::kCompute);
    Did(3, 19);
  };
  for (const bool spins : {true, false}) {
    SCOPED_TRACE(spins ? "its main thread spins in the driver" : "its main thread sleeps in the driver");
    begin();
    if (spins) Computes(3);
    for (int i = 0; i < 100; ++i) {
      card_works();
      ASSERT_FALSE(Run(1).alarm()) << "after " << i << " s";
    }
    // The card has stopped working: from then on the rank is treated like any other.
    const HangVerdict verdict = Run(spins ? 4 : 14);
    EXPECT_TRUE(verdict.alarm());
    EXPECT_EQ(verdict.culprit, 3);
    EXPECT_EQ(verdict.evidence, spins ? Evidence::kSpinning : Evidence::kSleeping);
  }
  // A card that never rests does not postpone the alarm forever: a kernel may loop, too.
  begin();
  bool alarm = false;
  for (int i = 0; i < 130 && !alarm; ++i) {
    card_works();
    alarm = Run(1).alarm();
  }
  EXPECT_TRUE(alarm);
}

TEST_F(Hangs, CallsThatGoOnGiveNothingAndReadNoProcesses) {
  for (std::uint64_t call = 1; call < 40; ++call) {
    AllIn(call);
    EXPECT_EQ(Run(0.25).kind, VerdictKind::kNothing);
    EXPECT_FALSE(judge_->WantsProcesses());
  }
}

TEST_F(Hangs, ASleepingRankThatSevenWaitForIsNamedAfterTenSecondsWithCallAndNumber) {
  for (const int culprit : {0, 1, 4, 7}) {
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    AllIn(13);
    Did(culprit, 12);
    const TimePoint began = now_;
    const HangVerdict verdict = Run(14);
    ASSERT_EQ(verdict.kind, VerdictKind::kHang) << culprit;
    EXPECT_EQ(verdict.culprit, culprit);
    EXPECT_EQ(verdict.evidence, Evidence::kSleeping);
    EXPECT_EQ(verdict.waiting.size(), 7U);
    EXPECT_TRUE(verdict.also_missing.empty());
    EXPECT_GE(now_ - began, seconds(10));
    EXPECT_LE(now_ - began, seconds(11));
    const events::Event event = HangEvent(verdict, {.names = {}, .first_rank = 16, .node = "a"});
    EXPECT_EQ(event.id, "hang");
    EXPECT_EQ(event.severity, events::Severity::kWarning);
    EXPECT_EQ(event.fields.Text("evidence"), "sleeping");
    EXPECT_EQ(event.fields.Int("awaited_rank"), 16 + culprit);
    EXPECT_EQ(event.fields.Ints("waiting_ranks").size(), 7U);
    EXPECT_EQ(event.fields.Text("call"), "all_reduce");
    EXPECT_EQ(event.fields.Int("call_number"), 13);
    EXPECT_EQ(event.fields.Int("last_call_number"), 12);
    EXPECT_EQ(event.fields.Text("group"), "world");
  }
}

TEST_F(Hangs, TheMessageOfAHang) {
  AllIn(13);
  Did(4, 12);
  const auto lines = Describe(Run(14), {}, 0, "node");
  EXPECT_EQ(
      lines[0],
      "HANG: rank 4 is stuck; ranks 0–3, 5–7 have waited 10.8 s in all_reduce #13 (float32 × 1000) of group world "
      "for it, its last call was all_reduce #12 (float32 × 1000)");
}

// Whether, when and why a wait is called a hang depends on what the awaited rank does.
TEST_F(Hangs, AHangNeedsEvidenceAndEachKindHasItsTime) {
  using Move = std::function<void(ProcessSample&)>;
  const auto waits = [](const ThreadWait& wait, char state = 'S') -> Move {
    return [=](ProcessSample& process) {
      process.wait = wait;
      process.state = state;
      process.exact_place = wait.call;
    };
  };
  const auto with = [](const Move& first, const Move& second) -> Move {
    return [=](ProcessSample& process) {
      first(process);
      second(process);
    };
  };
  const ThreadWait lock{WaitKind::kLock, "futex", ""};
  const ThreadWait socket{WaitKind::kIo, "recvfrom", "socket"};
  const ThreadWait nap{WaitKind::kSleep, "clock_nanosleep", ""};
  const Move computes = [](ProcessSample& process) {
    process.wait.kind = WaitKind::kRunning;
    process.exact_place = "running";
    process.cpu += milliseconds(200);
    process.main_thread += milliseconds(200);
  };
  constexpr double kNever = 0;
  struct Row {
    const char* what;
    Move does;
    double named_after;  // kNever: only waiting, for four minutes
    Evidence evidence;
    bool io;
  };
  const Row rows[] = {
      {"time.sleep(60)", waits(nap), 10, Evidence::kSleeping, false},
      {"a lock, other threads may release it", waits(lock), 10, Evidence::kSleeping, false},
      {"a lock that no thread can release",
       with(waits(lock), [](ProcessSample& process) { process.all_in_locks = true; }), 2.65, Evidence::kDeadlocked,
       false},
      {"an endless loop", computes, 2.65, Evidence::kSpinning, false},
      {"an endless loop, another thread waits for a socket",
       with(computes, [](ProcessSample& process) { process.a_worker_in_io = true; }), 2.65, Evidence::kSpinning, false},
      {"an upload that does not answer", waits(socket), 120, Evidence::kBlockedIo, true},
      {"an upload by another thread", with(waits(lock), [](ProcessSample& process) { process.a_worker_in_io = true; }),
       120, Evidence::kBlockedIo, true},
      {"an upload by a child, which it looks at every now and then",
       with(waits(nap),
            [](ProcessSample& process) {
              process.a_worker_in_io = true;
              process.switches += 5;
            }),
       120, Evidence::kBlockedIo, true},
      {"a FIFO without a writer", waits({WaitKind::kIo, "read", "pipe"}), 120, Evidence::kBlockedIo, true},
      {"a disk that does not answer", waits({WaitKind::kIo, "fsync", "/data/a"}, 'D'), 120, Evidence::kBlockedIo, true},
      {"nobody may see what it waits for", waits({WaitKind::kUnknown, "", ""}), 120, Evidence::kSleeping, false},
      {"a sleep while others of its threads compute",
       with(waits(nap), [](ProcessSample& process) { process.cpu += milliseconds(200); }), 120, Evidence::kSleeping,
       false},
      {"a download that trickles", with(waits(socket), [](ProcessSample& process) { ++process.switches; }), kNever,
       Evidence::kNone, false},
      {"a loop of small reads", with(computes, waits(socket)), kNever, Evidence::kNone, false},
      {"a debugger", with(waits(nap, 't'), [](ProcessSample& process) { process.traced = true; }), kNever,
       Evidence::kNone, false},
      {"a debugger at a deadlock",
       with(waits(lock),
            [](ProcessSample& process) {
              process.all_in_locks = true;
              process.traced = true;
            }),
       kNever, Evidence::kNone, false},
  };
  for (const Row& row : rows) {
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    processes_.clear();
    AllIn(13);
    Did(4, 12);
    moves_[4] = row.does;
    const HangVerdict before = Run(row.named_after == kNever ? 240 : row.named_after - 0.15);
    EXPECT_FALSE(before.alarm()) << row.what;
    if (row.named_after == kNever) {
      EXPECT_EQ(before.kind, VerdictKind::kWaiting) << row.what;
      EXPECT_EQ(WaitingEvent(before, {}, "train.py:9 in save").fields.Find("evidence"), nullptr);
      continue;
    }
    const HangVerdict verdict = Run(1.5);
    ASSERT_EQ(verdict.kind, VerdictKind::kHang) << row.what;
    EXPECT_EQ(verdict.culprit, 4) << row.what;
    EXPECT_EQ(verdict.evidence, row.evidence) << row.what << ": " << NameOf(verdict.evidence);
    EXPECT_EQ(verdict.io, row.io) << row.what;
  }
}

TEST_F(Hangs, AQuietUploadInAPlainScriptIsOnlyWaitingAndItsEventReportsIt) {
  AllIn(33);
  Did(0, 32);
  Record();
  Waits(0, {WaitKind::kIo, "recvfrom", "socket"});
  const HangVerdict verdict = Run(30);
  ASSERT_EQ(verdict.kind, VerdictKind::kWaiting);
  const events::Event event = WaitingEvent(verdict, {}, "train.py:9 in upload");
  EXPECT_EQ(event.id, "waiting");
  EXPECT_EQ(event.severity, events::Severity::kInfo);
  EXPECT_EQ(event.fields.Int("awaited_rank"), 0);
  EXPECT_EQ(event.fields.Ints("waiting_ranks"), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(event.fields.Int("call_number"), 33);
  EXPECT_EQ(event.fields.Text("where"), "train.py:9 in upload");
  EXPECT_EQ(event.fields.Text("system_call"), "recvfrom");
  EXPECT_EQ(std::get<bool>(*event.fields.Find("io")), true);
}

TEST_F(Hangs, ADeadlockIsNotClaimedWhileTheRankIsInACallOfAnotherGroup) {
  AllIn(13);
  Did(4, 12);
  wire::Collective& other = Group(4, "other", 9, 1);
  other.completed = 4;
  other.sequence = 5;
  other.size = 1;
  moves_[4] = [](ProcessSample& process) {
    process.wait = {WaitKind::kLock, "futex", ""};
    process.all_in_locks = true;
  };
  EXPECT_FALSE(Run(9).alarm());
}

TEST_F(Hangs, OnlyTheThreadsOfAwaitedRanksAreRequested) {
  AllIn(13);
  Did(4, 12);
  Run(2);
  EXPECT_EQ(judge_->WantsThreadsOf(), std::vector<int>{4});
  AllIn(14);
  Run(0.25);
  EXPECT_TRUE(judge_->WantsThreadsOf().empty());
}

TEST_F(Hangs, EvidenceIsRememberedOverMinutes) {
  for (std::uint64_t step = 1; step <= 5; ++step) {
    AllIn(step);
    for (int i = 0; i < kRanks; ++i) SetLoop(i, wire::Phase::kCompute, step, seconds(60));
    Run(0.25);
  }
  AllIn(6);
  Did(4, 5);
  EXPECT_FALSE(Run(299).alarm());
  const HangVerdict verdict = Run(4);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.evidence, Evidence::kSleeping);
}

TEST_F(Hangs, AScriptThatKnowsNothingOfUsGetsTenSecondsAndItsFirstStepTwoMinutes) {
  AllIn(4);
  Did(4, 3);
  Record();
  Computes(4);
  EXPECT_EQ(Run(118).kind, VerdictKind::kWaiting);
  EXPECT_EQ(Run(4).kind, VerdictKind::kHang);
  // A new run: the hang above would increase the measured time between two collectives.
  Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
  AllIn(33);
  Did(4, 32);
  Record();
  EXPECT_EQ(Run(9).kind, VerdictKind::kWaiting);
  EXPECT_EQ(Run(2).kind, VerdictKind::kHang);
  // The adapters report the phases of the DataLoader, which do not show what the script does in between.
  for (int i = 0; i < kRanks; ++i) SetLoop(i, wire::Phase::kCompute);
  Computes(4);
  AllIn(34);
  Did(4, 33);
  Record();
  EXPECT_EQ(Run(9).kind, VerdictKind::kWaiting);
  EXPECT_EQ(Run(3).kind, VerdictKind::kHang);
}

TEST_F(Hangs, ARankThatTakesCpuTimeIsNamedOnlyWhenItsStackStaysTheSame) {
  AllIn(13);
  Did(4, 12);
  Computes(4);
  const TimePoint began = now_;
  const HangVerdict verdict = Run(10);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.evidence, Evidence::kSpinning);
  EXPECT_EQ(verdict.culprit, 4);
  EXPECT_LE(now_ - began, milliseconds(3'500));

  AllIn(14);
  Did(4, 13);
  requests_ = 0;
  stack_ = [](int times) { return std::uint64_t{100} + static_cast<std::uint64_t>(times); };
  EXPECT_EQ(Run(120).kind, VerdictKind::kWaiting);
  EXPECT_LT(requests_, 12) << "who works is not to be asked all the time";
}

TEST_F(Hangs, ARankThatHasGoneOnToAnotherFunctionSinceDoesNotSpin) {
  AllIn(33);
  Did(4, 32);
  Record();
  Computes(4);
  stack_ = [](int times) {
    return times <= 2 ? std::uint64_t{11} : std::uint64_t{100} + static_cast<std::uint64_t>(times);
  };
  EXPECT_EQ(Run(60).kind, VerdictKind::kWaiting);
}

TEST_F(Hangs, ARankWhoseStackCannotBeReadGetsMoreTime) {
  AllIn(13);
  Did(4, 12);
  Computes(4);
  stack_ = [](int) { return std::uint64_t{0}; };
  EXPECT_EQ(Run(7.5).kind, VerdictKind::kWaiting);
  EXPECT_EQ(Run(4).kind, VerdictKind::kHang);
}

TEST_F(Hangs, WhoReadsWritesOrTouchesNewMemoryIsAlive) {
  AllIn(13);
  Did(4, 12);
  Computes(4, 100, 0);  // compiles, loads
  EXPECT_EQ(Run(90).kind, VerdictKind::kWaiting);
  EXPECT_EQ(requests_, 0);
  Computes(4, 0, 4096);
  EXPECT_EQ(Run(90).kind, VerdictKind::kWaiting);
  moves_[4] = [](ProcessSample& process) { process.io_bytes += 65536; };  // a slow disk: no CPU time
  EXPECT_EQ(Run(90).kind, VerdictKind::kWaiting);
}

TEST_F(Hangs, ARankThatGetsLittleOfABusyMachineIsAlive) {
  AllIn(13);
  Did(4, 12);
  stack_ = [](int times) { return static_cast<std::uint64_t>(times); };
  // A tenth of the time in the queue for a CPU, and a new place each time.
  moves_[4] = [](ProcessSample& process) {
    process.cpu += milliseconds(25);
    process.main_thread += milliseconds(25);
    process.exact_place = "running";
    process.wait.kind = WaitKind::kRunning;
  };
  EXPECT_EQ(Run(60).kind, VerdictKind::kWaiting);
}

TEST_F(Hangs, ADebuggerIsNoHang) {
  AllIn(13);
  Did(4, 12);
  moves_[4] = [](ProcessSample& process) {
    process.state = 't';
    process.traced = true;
    process.exact_place = "running";
  };
  EXPECT_EQ(Run(120).kind, VerdictKind::kWaiting);
}

TEST_F(Hangs, PhasesThatMayTakeLongAndTheFirstStepGetTheirTime) {
  struct Row {
    wire::Phase phase;
    std::uint64_t step;
    double quiet_until;
    double named_by;
  };
  const Row rows[] = {{wire::Phase::kCompute, 5, 9.75, 12},  {wire::Phase::kData, 5, 9.75, 12},
                      {wire::Phase::kCheckpoint, 5, 59, 62}, {wire::Phase::kValidation, 5, 59, 62},
                      {wire::Phase::kCompiling, 5, 59, 62},  {wire::Phase::kCompute, 0, 119, 122},
                      {wire::Phase::kLoading, 0, 119, 122}};
  for (const Row& row : rows) {
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    AllIn(13);
    Did(4, 12);
    for (int i = 0; i < kRanks; ++i) SetLoop(i, i == 4 ? row.phase : wire::Phase::kCommunication, row.step);
    EXPECT_FALSE(Run(row.quiet_until).alarm()) << wire::PhaseName(row.phase) << row.step;
    const HangVerdict verdict = Run(row.named_by - row.quiet_until);
    EXPECT_EQ(verdict.kind, VerdictKind::kHang) << wire::PhaseName(row.phase) << row.step;
    EXPECT_EQ(verdict.culprit, 4);
  }
}

TEST_F(Hangs, LongStepsMakeTheTimeLonger) {
  for (std::uint64_t step = 1; step <= 5; ++step) {
    AllIn(step);
    for (int i = 0; i < kRanks; ++i) SetLoop(i, wire::Phase::kCompute, step, seconds(4));
    Run(0.25);
  }
  EXPECT_EQ(judge_->MedianStep(), seconds(4));
  AllIn(6);
  Did(4, 5);
  EXPECT_EQ(Run(19).kind, VerdictKind::kNothing);
  EXPECT_EQ(Run(2).kind, VerdictKind::kHang);
}

TEST_F(Hangs, HangsThatWereReportedDoNotMakeTheTimeLonger) {
  std::uint64_t call = 0;
  for (int hang = 0; hang < 4; ++hang) {
    for (int poll = 0; poll < 8; ++poll) {
      AllIn(call += 20);
      Record();
      ASSERT_FALSE(Run(0.25).alarm());
    }
    AllIn(++call);
    Did(4, call - 1);
    Record();
    ASSERT_EQ(Run(12).kind, VerdictKind::kHang) << hang;
    AllIn(call);
    Record();
    Run(0.25);
  }
}

TEST_F(Hangs, ProgramsWithoutCollectivesMaySleepAsTheyLike) {
  EXPECT_EQ(Run(300).kind, VerdictKind::kNothing);
  EXPECT_FALSE(judge_->WantsProcesses());
}

TEST_F(Hangs, AllRanksBetweenCallsWaitForNobody) {
  for (int i = 0; i < kRanks; ++i) Did(i, 12);
  EXPECT_EQ(Run(300).kind, VerdictKind::kNothing);
}

TEST_F(Hangs, AStoppedRankIsNamedAlsoInsideACall) {
  AllIn(13);
  Rank(1).life = RankLife::kStopped;
  const HangVerdict verdict = Run(5);
  ASSERT_EQ(verdict.kind, VerdictKind::kStopped);
  EXPECT_EQ(verdict.evidence, Evidence::kStopped);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_EQ(verdict.awaited.sequence, 13U);
}

TEST_F(Hangs, AStoppedRankIsTheEndOfTheChainWhenSomeAreThroughTheCall) {
  AllIn(13);
  In(0, 14);
  In(2, 14);
  Rank(4).life = RankLife::kStopped;
  const HangVerdict verdict = Run(5);
  ASSERT_EQ(verdict.kind, VerdictKind::kStopped);
  EXPECT_EQ(verdict.culprit, 4);
}

TEST_F(Hangs, ARankThatEndedWellWhileTheOthersWaitIsNamed) {
  AllIn(13);
  Did(3, 12);
  Run(0.5);
  Rank(3).life = RankLife::kEnded;
  Rank(3).groups.clear();  // it left its groups
  const HangVerdict verdict = Run(5);
  ASSERT_EQ(verdict.kind, VerdictKind::kEnded);
  EXPECT_EQ(verdict.evidence, Evidence::kLeftCollective);
  EXPECT_EQ(verdict.culprit, 3);
  ASSERT_TRUE(verdict.culprits_call);
  EXPECT_EQ(verdict.culprits_call->sequence, 12U);
  EXPECT_NE(Describe(verdict, {}, 0, "host")[0].find("rank 3 has exited; ranks 0–2, 4–7 have waited"),
            std::string::npos);
}

TEST_F(Hangs, ARankThatFailedIsTheLaunchersAffair) {
  AllIn(13);
  Did(3, 12);
  Rank(3).life = RankLife::kFailed;
  EXPECT_EQ(Run(20).kind, VerdictKind::kNothing);
}

TEST_F(Hangs, TheOddOneOfACallIsNamedWithBothCalls) {
  for (const int culprit : {0, 1, 4, 7}) {
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    AllIn(13);
    In(culprit, 13, FULLDECK_BOARD_BARRIER, 2);
    const HangVerdict verdict = Run(5);
    ASSERT_EQ(verdict.kind, VerdictKind::kDesync);
    EXPECT_EQ(verdict.evidence, Evidence::kMismatched);
    EXPECT_EQ(verdict.culprit, culprit);
    EXPECT_EQ(verdict.awaited.operation, static_cast<std::uint32_t>(FULLDECK_BOARD_ALL_REDUCE));
    EXPECT_EQ(verdict.culprits_call->operation, static_cast<std::uint32_t>(FULLDECK_BOARD_BARRIER));
    EXPECT_NE(Describe(verdict, {}, 0, "h")[0].find("is in barrier #13"), std::string::npos);
  }
}

TEST_F(Hangs, TheOddOneIsNotNamedBeforeMostHaveReportedTheirCalls) {
  AllIn(13);
  for (int i = 2; i < kRanks; ++i) In(i, 13, FULLDECK_BOARD_OTHER_OPERATION, 1);
  In(0, 13, FULLDECK_BOARD_ALL_GATHER, 2);
  EXPECT_FALSE(Run(4).alarm());
  for (int i = 2; i < kRanks; ++i) Group(i).operation = FULLDECK_BOARD_ALL_REDUCE;
  const HangVerdict verdict = Run(1);
  ASSERT_EQ(verdict.kind, VerdictKind::kDesync);
  EXPECT_EQ(verdict.culprit, 0);
}

TEST_F(Hangs, ARankThatIsStillInACallThatTheOthersAreThroughIsNoDesync) {
  AllIn(14);
  In(4, 13);
  moves_[4] = [](ProcessSample& process) { process.traced = true; };
  const HangVerdict before = Run(20);
  EXPECT_EQ(before.kind, VerdictKind::kWaiting);
  EXPECT_EQ(before.waiting, (std::vector<int>{0, 1, 2, 3, 5, 6, 7})) << "nobody waits for itself";
  Sleeps(4);
  processes_[4].traced = false;
  const HangVerdict verdict = Run(14);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.culprit, 4);
  EXPECT_EQ(verdict.waiting, before.waiting);
}

TEST_F(Hangs, CallsOfWhichNothingIsReportedAreNotCompared) {
  AllIn(13);
  In(4, 13, FULLDECK_BOARD_OTHER_OPERATION, 2);
  EXPECT_EQ(Run(5).kind, VerdictKind::kWaiting);
}

TEST_F(Hangs, AFailedRunReportsWhoCalledSomethingElse) {
  AllIn(13);
  In(4, 13, FULLDECK_BOARD_BROADCAST, 2);
  Rank(2).life = RankLife::kFailed;
  for (int i = 0; i < kRanks; ++i) Group(i).completed = 13;  // with an error
  const auto verdict = judge_->Differing(now_, ranks_);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->culprit, 4);
}

// Gloo ends a rank whose peer sends more than it expects; that rank's collective is not reported.
TEST_F(Hangs, ARankThatGlooEndedForAMessageThatWasTooLongIsTheOddOneOnlyIfTheOthersAgree) {
  constexpr std::uint64_t kLong = 2;
  struct Row {
    const char* what;
    std::vector<int> with_long_call;
    std::vector<int> unreported;  // in addition to rank 0, which was ended
    int culprit;                  // -1: unknown
    bool joined = true;           // rank 0 was seen in the group
    std::uint32_t operation = FULLDECK_BOARD_ALL_REDUCE;
  };
  const Row rows[] = {{"one calls for more", {5}, {}, 5},
                      {"all others call the same", {1, 2, 3, 4, 5, 6, 7}, {}, 0},
                      {"one calls for more, one has not reported", {5}, {6}, 5},
                      {"one calls for more, and two others have reported", {5}, {1, 2, 3, 4}, -1},
                      {"the others agree, one has not reported", {}, {6}, -1},
                      {"it had not been seen yet", {5}, {}, 5, false},
                      {"it had not been seen yet, and is the odd one", {}, {}, 0, false},
                      {"the group was only being made", {}, {}, -1, true, FULLDECK_BOARD_MEETING}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    AllIn(13);
    for (const int i : row.with_long_call) {
      In(i, 13, FULLDECK_BOARD_ALL_REDUCE, kLong);
      Group(i).bytes = 8'000;
    }
    for (const int i : row.unreported) Group(i).operation = FULLDECK_BOARD_OTHER_OPERATION;
    for (int i = 1; i < kRanks; ++i) {
      Group(i).completed = 13;  // with an error
      if (row.operation == FULLDECK_BOARD_MEETING) Group(i).operation = row.operation;
    }
    Did(0, 11);  // as last seen
    if (!row.joined) Rank(0).groups.clear();
    Rank(0).life = RankLife::kFailed;
    Rank(0).sent_too_much = true;
    const auto verdict = judge_->Differing(now_, ranks_);
    EXPECT_EQ(verdict ? verdict->culprit : -1, row.culprit);
    if (verdict) {
      EXPECT_EQ(verdict->waiting.size(), row.unreported.empty() ? 7U : 5U);
      EXPECT_NE(Describe(*verdict, {}, 0, "host")[0].find("DESYNC"), std::string::npos);
    }
  }
}

TEST_F(Hangs, TheEndOfAChainThroughTwoGroupsIsNamed) {
  // Ranks 2 and 3 share a group. Rank 3 hangs before its collective, 2 waits for it there, and all others wait for 2.
  AllIn(13);
  Did(2, 12);
  Did(3, 12);
  for (const int i : {2, 3}) {
    wire::Collective& pair = Group(i, "pair", 9, 2);
    pair.rank = static_cast<std::uint32_t>(i - 2);
    pair.operation = FULLDECK_BOARD_BROADCAST;
    pair.completed = 4;
    pair.sequence = i == 2 ? 5 : 4;
  }
  const HangVerdict verdict = Run(12);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.culprit, 3);
}

TEST_F(Hangs, GroupsInAnotherOrderAreADesyncOfTheOneThatMostWaitFor) {
  AllIn(13);
  Did(4, 12);
  for (int i = 0; i < kRanks; ++i) {
    wire::Collective& other = Group(i, "other", 9);
    other.operation = FULLDECK_BOARD_BARRIER;
    other.completed = 4;
    other.sequence = i == 4 ? 5 : 4;
  }
  const HangVerdict verdict = Run(6);
  ASSERT_EQ(verdict.kind, VerdictKind::kDesync);
  EXPECT_EQ(verdict.evidence, Evidence::kDeadlocked);
  EXPECT_EQ(verdict.culprit, 4);
  EXPECT_EQ(verdict.awaited.group, "world");
  EXPECT_EQ(verdict.culprits_call->group, "other");
}

TEST_F(Hangs, AReceiveWaitsForItsPeerAlone) {
  for (int i = 0; i < kRanks; ++i) Group(i);
  In(5, 3, FULLDECK_BOARD_RECEIVE, 1);
  Group(5).root = 2;
  const HangVerdict verdict = Run(31);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.culprit, 2);
  EXPECT_EQ(verdict.waiting, std::vector<int>{5});
}

TEST_F(Hangs, OfTwoThatHaveNotArrivedTheOneThatIsFurtherBehindIsNamedOnceBothAreUnresponsive) {
  AllIn(13);
  Did(2, 12);
  Did(6, 11);
  Computes(2, 1000);
  EXPECT_EQ(Run(20).kind, VerdictKind::kWaiting) << "one of them works";
  Sleeps(2);
  const HangVerdict verdict = Run(14);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.culprit, 6);
  EXPECT_EQ(verdict.also_missing, std::vector<int>{2});
}

TEST_F(Hangs, ACallThatAllAreInAndThatNobodyMovesIsLostAfterHalfAMinuteAlsoBeforeTheFirstStep) {
  AllIn(1);
  EXPECT_EQ(Run(29).kind, VerdictKind::kWaiting);
  const HangVerdict verdict = Run(4);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.evidence, Evidence::kDeadlocked);
  EXPECT_EQ(verdict.culprit, -1);
}

TEST_F(Hangs, WhenAllOfThisNodeWaitTheCulpritIsElsewhere) {
  Use({.run_id = "run", .local_ranks = 4, .first_rank = 4, .world_size = 8});
  for (int i = 0; i < 4; ++i) {
    In(i, 13);
    Group(i).rank = static_cast<std::uint32_t>(4 + i);
  }
  EXPECT_EQ(Run(2.25).kind, VerdictKind::kNothing);
  const HangVerdict verdict = Run(60);
  ASSERT_EQ(verdict.kind, VerdictKind::kElsewhere);
  EXPECT_FALSE(verdict.alarm()) << "there is no evidence here";
  const events::Event event = WaitingEvent(verdict, {.names = {}, .first_rank = 4, .node = "b"}, "");
  EXPECT_EQ(event.id, "waiting");
  EXPECT_EQ(event.fields.Int("awaited_rank", 0), -1);
  EXPECT_EQ(event.fields.Ints("waiting_ranks"), (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(std::get<bool>(*event.fields.Find("elsewhere")), true);
}

TEST_F(Hangs, OneOfThisNodeThatHasNotArrivedIsNamedByItsNumberInTheRun) {
  Use({.run_id = "run", .local_ranks = 4, .first_rank = 4, .world_size = 8});
  for (int i = 0; i < 4; ++i) {
    i == 2 ? Did(i, 12) : In(i, 13);
    Group(i).rank = static_cast<std::uint32_t>(4 + i);
  }
  const HangVerdict verdict = Run(12);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(judge_->RunRank(verdict.culprit), 6);
}

TEST_F(Hangs, ARankThatNeverJoinedTheGroupOfAllIsWaitedFor) {
  for (int i = 0; i < kRanks; ++i) {
    if (i != 5) In(i, 3);
  }
  const HangVerdict verdict = Run(12);
  ASSERT_EQ(verdict.kind, VerdictKind::kHang);
  EXPECT_EQ(verdict.culprit, 5);
  EXPECT_FALSE(verdict.culprits_call);
}

TEST_F(Hangs, WhoDoesNotComeWhenAGroupIsMadeIsNamed) {
  for (const RankLife life : {RankLife::kStopped, RankLife::kEnded, RankLife::kThere}) {
    Use({.run_id = "run", .local_ranks = kRanks, .first_rank = 0, .world_size = kRanks});
    for (int i = 0; i < kRanks; ++i) {
      if (i != 5) In(i, 1, FULLDECK_BOARD_MEETING);
      Group(i).datatype = FULLDECK_BOARD_NO_DATA;
    }
    Rank(5).groups.clear();
    Rank(5).life = life;
    const HangVerdict verdict = Run(life == RankLife::kThere ? 123 : 3);
    ASSERT_EQ(verdict.kind, life == RankLife::kStopped ? VerdictKind::kStopped
                            : life == RankLife::kEnded ? VerdictKind::kEnded
                                                       : VerdictKind::kHang);
    EXPECT_EQ(verdict.culprit, 5);
    const std::vector<std::string> lines = Describe(verdict, {}, 0, "a");
    EXPECT_NE(lines[0].find("ranks 0–4, 6, 7 have waited"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find(" in meeting #1 of group world for it, it has not come there"), std::string::npos)
        << lines[0];
    EXPECT_EQ(lines.size() > 1 && lines[1].find("before the group was made") != std::string::npos,
              life == RankLife::kEnded);
  }
}

TEST_F(Hangs, ARendezvousThatNoNodeCanCompleteIsExplained) {
  for (const char* name : {"world", "c10d world"}) {
    Use({.run_id = "run", .local_ranks = 4, .first_rank = 4, .world_size = 8});
    for (int i = 0; i < 4; ++i) {
      In(i, 1, FULLDECK_BOARD_MEETING);
      Group(i).rank = static_cast<std::uint32_t>(4 + i);
      Group(i).name = name;
    }
    const HangVerdict verdict = Run(3);
    ASSERT_EQ(verdict.kind, VerdictKind::kElsewhere);
    EXPECT_EQ(Describe(verdict, {}, 4, "b")[0].find("joins the ranks of one node") != std::string::npos,
              std::string(name) == "world");
  }
}

TEST_F(Hangs, AWaitThatEndsLeavesNothingBehind) {
  AllIn(13);
  Did(4, 12);
  EXPECT_EQ(Run(2.25).kind, VerdictKind::kNothing);
  AllIn(14);
  Did(4, 13);
  EXPECT_EQ(Run(2.25).kind, VerdictKind::kNothing) << "it begins anew with each call";
}

TEST_F(Hangs, TextForTheProgressLine) {
  AllIn(13);
  Did(4, 12);
  SetLoop(4, wire::Phase::kCheckpoint);
  EXPECT_EQ(DescribeBriefly(Run(5), 0),
            "ranks 0–3, 5–7 wait 5.0 s in all_reduce #13 (float32 × 1000) for rank 4 (checkpoint)");
  EXPECT_EQ(DescribeBriefly(HangVerdict(), 0), "");
  EXPECT_EQ(base::FormatRanges({0, 1, 3, 5, 6, 7}, 8), "8, 9, 11, 13–15");
}

}  // namespace
}  // namespace fulldeck::diagnosis
