#include "diagnosis/root_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>

namespace fulldeck::diagnosis {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

int WaitStatus(int code) {
  return code << 8;
}

RankExit End(int rank, int status, int order, bool after_stop = false, std::optional<double> stamp = std::nullopt) {
  return {rank, ExitStatus{status}, order, after_stop, stamp, {}};
}

TEST(RootCause, IsNothingWhenAllEndedWell) {
  EXPECT_EQ(RootCause({End(0, 0, 1), End(1, 0, 2)}), std::nullopt);
  EXPECT_EQ(RootCause({}), std::nullopt);
}

TEST(RootCause, IsTheFirstToFailNotThoseThatWeStopped) {
  EXPECT_EQ(RootCause({End(0, SIGTERM, 2, true), End(1, 0, 1), End(2, WaitStatus(1), 2), End(3, SIGTERM, 3, true)}),
            2u);
  EXPECT_EQ(RootCause({End(0, WaitStatus(1), 5, true), End(7, WaitStatus(1), 6)}), 1u);
}

TEST(RootCause, IsTheCrashWhenOthersNoticedInTheSameTurn) {
  EXPECT_EQ(RootCause({End(0, WaitStatus(1), 4), End(1, WaitStatus(1), 4), End(5, SIGKILL, 4)}), 2u);
}

TEST(RootCause, FollowsErrorFilesOnlyBetweenExitsWithinASecondAndNeverOfWhatWeStopped) {
  EXPECT_EQ(RootCause({End(0, WaitStatus(1), 1, false, 100.5), End(3, WaitStatus(1), 2, false, 100.1)}), 1u);
  // The clock was set back, or the program is wrong: the launcher's observation decides.
  EXPECT_EQ(RootCause({End(0, WaitStatus(1), 1, false, 3700.0), End(3, WaitStatus(1), 2, true, 100.0)}), 0u);
  RankExit late = End(3, WaitStatus(1), 2, false, 100.0);
  late.at += milliseconds(1'001);
  EXPECT_EQ(RootCause({End(0, WaitStatus(1), 1, false, 3700.0), late}), 0u);
  EXPECT_EQ(RootCause({End(0, WaitStatus(7), 1), End(3, WaitStatus(1), 2, false, 100.0)}), 0u) << "none to compare";
}

// Any set of exits has one answer. It depends only on the set, and is never a rank that we stopped if another one
// failed by itself.
TEST(RootCause, IsTheSameInAnyOrderOfTheExits) {
  std::mt19937 random(7);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<RankExit> exits;
    for (int rank = 0; rank < 1 + below(6); ++rank) {
      RankExit exit_status = End(rank, below(3) == 0 ? SIGKILL : WaitStatus(below(3)), 1 + below(4), below(2) == 0);
      exit_status.at += milliseconds(400 * exit_status.order);
      if (below(2) == 0) exit_status.error_seconds = below(4);
      exits.push_back(exit_status);
    }
    const auto first = RootCause(exits);
    const bool by_itself = std::any_of(exits.begin(), exits.end(),
                                       [](const RankExit& one) { return !one.exit_status.ok() && !one.after_stop; });
    if (!first) continue;
    const int chosen = exits[*first].local_rank;
    EXPECT_FALSE(exits[*first].exit_status.ok());
    EXPECT_EQ(exits[*first].after_stop, !by_itself);
    std::shuffle(exits.begin(), exits.end(), random);
    ASSERT_EQ(exits[*RootCause(exits)].local_rank, chosen) << "round " << round;
  }
}

RankFacts Facts(int rank, std::optional<RankExit> exit_status, wire::FailureCode code = wire::FailureCode::kNotReported,
                int culprit = -1, std::uint64_t failed_ns = 0) {
  RankFacts facts;
  facts.local_rank = facts.rank = rank;
  facts.exit_status = exit_status;
  facts.code = code;
  facts.culprit = culprit;
  facts.failed_ns = failed_ns;
  return facts;
}

TEST(RootOf, IsTheRankThatLeftWithCode0WhileOthersCommunicatedWithIt) {
  using wire::FailureCode;
  // The others blamed it.
  auto root = RootOf({Facts(0, End(0, WaitStatus(1), 2), FailureCode::kPeerLost, 1), Facts(1, End(1, 0, 1)),
                      Facts(2, End(2, SIGTERM, 3, true))},
                     3);
  ASSERT_TRUE(root.has_value());
  EXPECT_THAT(root->local_ranks, ElementsAre(1));
  EXPECT_EQ(root->reason, RootReason::kLeftEarly);
  EXPECT_EQ(root->noticed_by, 0);
  // The others only know that their communication failed.
  root = RootOf({Facts(0, End(0, WaitStatus(1), 2), FailureCode::kPeerLost), Facts(1, End(1, 0, 1))}, 2);
  EXPECT_THAT(root->local_ranks, ElementsAre(1));
  // The board shows a collective that it did not reach.
  RankFacts waiting = Facts(0, End(0, WaitStatus(1), 2));
  waiting.groups = {{77, 2, 11, true}};
  RankFacts left = Facts(1, End(1, 0, 1));
  left.groups = {{77, 2, 10, false}};
  EXPECT_THAT(RootOf({waiting, left}, 2)->local_ranks, ElementsAre(1));
  // It left the group and had not exited when the others noticed; ranks that followed it left later.
  RankFacts lost = Facts(0, End(0, WaitStatus(1), 2), FailureCode::kPeerLost, -1, 500);
  lost.groups = {{77, 3, 11, false}};
  RankFacts leaver = Facts(1, End(1, SIGTERM, 3, true));
  leaver.left_ns = 300;
  RankFacts follower = Facts(2, End(2, WaitStatus(1), 3, true));
  follower.left_ns = 400;
  root = RootOf({lost, leaver, follower}, 3);
  EXPECT_THAT(root->local_ranks, ElementsAre(1));
  EXPECT_EQ(root->reason, RootReason::kLeftEarly);
  // An abort is a consequence of the reported failure; a crash is a cause of its own.
  root = RootOf({Facts(0, End(0, SIGABRT, 2), FailureCode::kPeerLost), Facts(1, End(1, 0, 1))}, 2);
  EXPECT_THAT(root->local_ranks, ElementsAre(1));
  EXPECT_EQ(root->reason, RootReason::kLeftEarly);
  for (const int crash : {SIGSEGV, SIGBUS}) {
    root = RootOf({Facts(0, End(0, crash, 2), FailureCode::kPeerLost), Facts(1, End(1, 0, 1))}, 2);
    EXPECT_THAT(root->local_ranks, ElementsAre(0));
    EXPECT_EQ(root->reason, RootReason::kSignal);
  }
  root = RootOf({Facts(0, End(0, SIGABRT, 2)), Facts(1, End(1, 0, 1))}, 2);
  EXPECT_THAT(root->local_ranks, ElementsAre(0)) << "it reported nothing";
  // It reached that collective, or the failed rank was in none: then the latter failed by itself.
  left.groups = {{77, 2, 11, false}};
  EXPECT_THAT(RootOf({waiting, left}, 2)->local_ranks, ElementsAre(0));
  waiting.groups = {{77, 2, 11, false}};
  left.groups.clear();
  root = RootOf({waiting, left}, 2);
  EXPECT_THAT(root->local_ranks, ElementsAre(0));
  EXPECT_EQ(root->reason, RootReason::kExitCode);
}

TEST(RootOf, IsTheOddOneOfAMismatchAndBothOfTwo) {
  using wire::FailureCode;
  auto root = RootOf({Facts(0, End(0, WaitStatus(1), 2), FailureCode::kDifferentCalls, 2),
                      Facts(1, End(1, WaitStatus(1), 1), FailureCode::kDifferentCalls, 2),
                      Facts(2, End(2, SIGTERM, 3, true), FailureCode::kDifferentCalls, 2)},
                     3);
  EXPECT_THAT(root->local_ranks, ElementsAre(2));
  EXPECT_EQ(root->reason, RootReason::kDifferentCalls);
  root = RootOf({Facts(0, End(0, SIGTERM, 2, true), FailureCode::kDifferentCalls),
                 Facts(1, End(1, WaitStatus(1), 1), FailureCode::kDifferentCalls)},
                2);
  EXPECT_THAT(root->local_ranks, ElementsAre(0, 1));
  EXPECT_EQ(root->noticed_by, 1);
}

TEST(RootOf, IsNotTheRankThatGlooAbortsWhenCallsDiffer) {
  using wire::FailureCode;
  // It is unknown which rank is odd.
  std::vector<RankFacts> ranks = {Facts(0, End(0, SIGABRT, 1)),
                                  Facts(1, End(1, WaitStatus(1), 2), FailureCode::kPeerLost),
                                  Facts(2, End(2, SIGTERM, 3, true))};
  BlameDifferentCalls(ranks);
  auto root = RootOf(ranks, 3);
  ASSERT_TRUE(root.has_value());
  EXPECT_THAT(root->local_ranks, ElementsAre(0, 1, 2));
  EXPECT_EQ(root->reason, RootReason::kDifferentCalls);
  // The collectives on the board have shown it.
  for (RankFacts& rank : ranks) {
    rank.code = FailureCode::kDifferentCalls;
    rank.culprit = 1;
  }
  BlameDifferentCalls(ranks);
  EXPECT_THAT(RootOf(ranks, 3)->local_ranks, ElementsAre(1));
  // A rank that crashed first is the root cause.
  ranks = {Facts(0, End(0, SIGABRT, 2)), Facts(1, End(1, SIGSEGV, 1)), Facts(2, End(2, SIGTERM, 3, true))};
  BlameDifferentCalls(ranks);
  EXPECT_THAT(RootOf(ranks, 3)->local_ranks, ElementsAre(1));
}

TEST(RootOf, FollowsTheReportsToTheirBeginning) {
  using wire::FailureCode;
  // Rank 0 lost 1, which lost 2, which crashed.
  auto root =
      RootOf({Facts(0, End(0, WaitStatus(1), 1), FailureCode::kPeerLost, 1),
              Facts(1, End(1, WaitStatus(1), 2, true), FailureCode::kPeerLost, 2), Facts(2, End(2, SIGSEGV, 2, true))},
             3);
  EXPECT_THAT(root->local_ranks, ElementsAre(2));
  // Rank 1 did not arrive; 1 in turn lost 0, which had given up. The first to report is right.
  for (const int first : {0, 1}) {
    root = RootOf({Facts(0, End(0, WaitStatus(1), first == 0 ? 1 : 2, first != 0), FailureCode::kTimeout, 1, 100),
                   Facts(1, End(1, WaitStatus(1), first == 1 ? 1 : 2, first != 1), FailureCode::kPeerLost, 0, 200)},
                  2);
    EXPECT_THAT(root->local_ranks, ElementsAre(1)) << first;
  }
  // All stop at a value that one of them contributed.
  root = RootOf({Facts(0, End(0, WaitStatus(1), 1), FailureCode::kNonfinite, 1),
                 Facts(1, End(1, WaitStatus(1), 1), FailureCode::kNonfinite, 1)},
                2);
  EXPECT_THAT(root->local_ranks, ElementsAre(1));
  EXPECT_EQ(root->reason, RootReason::kNonfinite);
  // The root cause is on another node.
  root = RootOf({Facts(0, End(0, WaitStatus(1), 1), FailureCode::kPeerLost, 9)}, 16);
  EXPECT_EQ(root->rank, 9);
  EXPECT_TRUE(root->local_ranks.empty());
  EXPECT_EQ(RootOf({Facts(0, End(0, 0, 1)), Facts(1, std::nullopt)}, 2), std::nullopt);
}

TEST(RootOf, IsTheRankThatTheOthersWaitedForUntilTheirTimeOut) {
  using wire::FailureCode;
  constexpr std::uint64_t kSecond = 1'000'000'000;
  constexpr std::uint64_t kSeen = 100 * kSecond;
  const LastWait wait{1, {0, 2}, 77, 31, kSeen};
  struct Row {
    const char* what;
    std::uint64_t failed_ns;     // of rank 2, the first to end
    std::uint64_t awaited_call;  // the collective of rank 1
    std::optional<RankExit> awaited_end;
    bool left;  // rank 1 has left the group
    int root;
    RootReason reason;
  };
  const RankExit stopped = End(1, SIGTERM, 3, true);
  const Row rows[] = {
      {"it did not come", kSeen + kSecond, 30, stopped, false, 1, RootReason::kNotArrived},
      {"it did not come, and Python took its time to end", kSeen + 20 * kSecond, 30, stopped, false, 1,
       RootReason::kNotArrived},
      {"it came too late", kSeen + kSecond, 31, stopped, false, 1, RootReason::kNotArrived},
      {"it failed by itself then", kSeen + kSecond, 30, End(1, WaitStatus(3), 2), false, 1, RootReason::kExitCode},
      {"it came, and the run went on", kSeen + 3 * kSecond, 40, stopped, false, 2, RootReason::kExitCode},
      {"the wait was seen long ago", kSeen + 60 * kSecond, 30, stopped, false, 2, RootReason::kExitCode},
      {"the failure was there before", kSeen - 5 * kSecond, 30, stopped, false, 2, RootReason::kExitCode},
      {"it has left, which says more", kSeen + kSecond, 30, End(1, 0, 1), true, 1, RootReason::kLeftEarly},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    std::vector<RankFacts> ranks = {Facts(0, End(0, SIGTERM, 3, true)), Facts(1, row.awaited_end),
                                    Facts(2, End(2, WaitStatus(1), 1), FailureCode::kPeerLost, -1, row.failed_ns)};
    if (!row.left) ranks[1].groups = {{77, 3, row.awaited_call, false}};
    ranks[0].groups = ranks[2].groups = {{77, 3, 31, true}};
    BlameAwaited(ranks, wait);
    const auto root = RootOf(ranks, 3);
    ASSERT_TRUE(root.has_value());
    EXPECT_THAT(root->local_ranks, ElementsAre(row.root));
    EXPECT_EQ(root->reason, row.reason);
    EXPECT_EQ(root->noticed_by, 2);
  }
  // A crash is a root cause whichever rank was awaited, and a rank that did not wait has no evidence.
  std::vector<RankFacts> ranks = {Facts(0, End(0, SIGSEGV, 1), FailureCode::kPeerLost, -1, kSeen), Facts(1, stopped),
                                  Facts(2, End(2, SIGTERM, 3, true))};
  BlameAwaited(ranks, wait);
  EXPECT_THAT(RootOf(ranks, 3)->local_ranks, ElementsAre(0));
  ranks[0].exit_status = End(0, WaitStatus(1), 1);
  ranks[0].code = FailureCode::kPeerLost;
  ranks[0].culprit = -1;
  BlameAwaited(ranks, LastWait{1, {2}, 77, 31, kSeen});
  EXPECT_THAT(RootOf(ranks, 3)->local_ranks, ElementsAre(0));
}

TEST(RootCause, IsTheLowestRankWhenNothingElseDecides) {
  EXPECT_EQ(RootCause({End(2, WaitStatus(1), 1), End(1, WaitStatus(1), 1)}), 1u);
}

}  // namespace
}  // namespace fulldeck::diagnosis
