// Members that die, stop, leave, or make a different call, as real processes. The questions are the same each time: do
// the others return in time, with the same failure and the right rank, and is the group unusable afterwards?
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "collectives/group.h"
#include "collectives/rendezvous/rendezvous_testing.h"
#include "collectives/testing/fake_card.h"
#include "collectives/testing/problem.h"
#include "collectives/testing/ranks.h"

namespace fulldeck::collectives {
namespace {

using testing::Bytes;
using testing::FakeCard;
using testing::FreshName;
using ::testing::HasSubstr;
using testing::MemberProcess;
using testing::OptionsOf;
using testing::PollUntilTrue;

// Far below the timeout of the groups; `make promises` measures the promised one second on an idle machine.
constexpr double kBoundSeconds = 30;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What ranks report to each other and to the test, outside of the group.
struct Board {
  std::atomic<double> died_at{0};
  std::atomic<int> ready{0};
  std::atomic<int> go{0};
};
class SharedBoard {
 public:
  SharedBoard() {
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    board_ = new (memory) Board;
  }
  ~SharedBoard() { munmap(board_, 4096); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

// The outcome of a member; it is sent through a pipe as text.
struct Outcome {
  int code = 1;
  double at = 0;
  bool poisoned = false;  // a further call returned the same
  std::string text;

  std::string ToText() const {
    return std::to_string(code) + ' ' + std::to_string(at) + ' ' + (poisoned ? "1 " : "0 ") + text;
  }
  static Outcome FromText(const std::string& serialized) {
    Outcome outcome;
    char* rest = nullptr;
    outcome.code = static_cast<int>(std::strtol(serialized.c_str(), &rest, 10));
    outcome.at = std::strtod(rest, &rest);
    outcome.poisoned = std::strtol(rest, &rest, 10) != 0;
    outcome.text = *rest == ' ' ? rest + 1 : serialized;
    return outcome;
  }
};

Outcome Failed(Group& group, const Status& status) {
  Outcome outcome{status.code(), Seconds(), false, status.text()};
  float value = 0;
  const Buffer buffer = Buffer::Host(&value);
  const Status again[] = {group.Barrier(), group.AllReduce(buffer, buffer, 1, Datatype::kFloat32, Reduction::kSum),
                          group.CurrentStatus(), group.Send(&value, 4, group.rank() == 0 ? 1 : 0, 0)};
  outcome.poisoned = std::all_of(std::begin(again), std::end(again), [&](const Status& next) {
    return next.code() == status.code() && next.text() == status.text();
  });
  return outcome;
}

using Life = std::function<Outcome(Group&)>;
MemberProcess Member(const GroupOptions& common, int rank, int size, const Life& life) {
  return MemberProcess([&] {
    Group::CreateResult made = Group::Create(OptionsOf(common, rank, size));
    if (made.group == nullptr) return Outcome{made.status.code(), Seconds(), true, made.status.text()}.ToText();
    return life(*made.group).ToText();
  });
}

GroupOptions SmallChunks(const char* name) {
  GroupOptions options;
  options.name = FreshName(name);
  options.chunk_bytes = 4096;
  options.timeout = std::chrono::minutes(2);
  return options;
}

// All of them failed in the same way, in time, and permanently.
void ExpectSameEnd(const std::vector<Outcome>& outcomes, int code, double since, double bound = kBoundSeconds) {
  double slowest = 0;
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, code) << outcome.text;
    EXPECT_EQ(outcome.text, outcomes[0].text);
    EXPECT_TRUE(outcome.poisoned) << outcome.text;
    slowest = std::max(slowest, outcome.at - since);
  }
  EXPECT_LT(slowest, bound);
  ::testing::Test::RecordProperty("slowest_survivor_ms", static_cast<int>(slowest * 1000));
}

// ---- death in every phase of a call ----

constexpr std::uint64_t kCount = 10 * 4096;  // ten chunks

// Calls until one fails: a call may still succeed after a member's death if the dead member had already done its part.
Outcome CallUntilItFails(Group& group, Operation operation, FakeCard* card) {
  std::vector<std::uint8_t> values(kCount * 4);
  std::vector<std::uint8_t> others(kCount * 4);
  const Buffer buffer = card != nullptr ? Buffer::Staged(*card) : Buffer::Host(values.data());
  std::vector<Buffer> parts;
  for (std::uint64_t rank = 0; rank < 4; ++rank) parts.push_back(Buffer::Host(others.data() + rank * kCount));
  while (true) {
    Status status;
    if (operation == Operation::kAllReduce)
      status = group.AllReduce(buffer, buffer, kCount, Datatype::kUint8, Reduction::kSum);
    if (operation == Operation::kBroadcast) status = group.Broadcast(buffer, kCount, Datatype::kUint8, 1);
    if (operation == Operation::kAllGather) {
      status = group.AllGather(buffer, std::span(parts).first(static_cast<std::size_t>(group.size())), kCount,
                               Datatype::kUint8);
    }
    if (!status.ok()) return Failed(group, status);
  }
}

struct Death {
  const char* name;
  FakeCard::Step step;
  int number;
  Operation operation = Operation::kAllReduce;
  bool pidfd = true;
  bool levels = false;
};
class GroupDeath : public ::testing::TestWithParam<Death> {};
using Step = FakeCard::Step;
std::string NameOfDeath(const ::testing::TestParamInfo<Death>& given) {
  return given.param.name;
}
INSTANTIATE_TEST_SUITE_P(
    Phases, GroupDeath,
    ::testing::Values(Death{"BeforeTheFirstPiece", Step::kStartIn, 0},
                      Death{"WithTheFirstPieceOnItsWay", Step::kFinishIn, 0, Operation::kAllReduce, false},
                      Death{"BehindTheFirstGate", Step::kStartIn, 1},
                      Death{"InTheMiddleOfThePieces", Step::kFinishIn, 5, Operation::kAllReduce, false},
                      Death{"AtTheLastPieceIn", Step::kFinishIn, 9},
                      Death{"AtTheFirstPieceOut", Step::kStartOut, 0, Operation::kAllReduce, false},
                      Death{"WithPiecesGoingOut", Step::kFinishOut, 4},
                      Death{"AtTheVeryEnd", Step::kFinishOut, 9, Operation::kAllReduce, false},
                      Death{"InTheNextCall", Step::kStartIn, 13},
                      Death{"AsTheRootOfABroadcast", Step::kFinishIn, 4, Operation::kBroadcast, false},
                      Death{"InAnAllGather", Step::kFinishIn, 7, Operation::kAllGather},
                      Death{"BetweenTwoNodes", Step::kFinishIn, 6, Operation::kAllReduce, true, true},
                      Death{"AtTheEndOfTwoLevels", Step::kFinishOut, 8, Operation::kAllReduce, false, true}),
    NameOfDeath);

TEST_P(GroupDeath, EndsEveryOtherRankInTimeWithTheDeadOneNamed) {
  const Death& death = GetParam();
  GroupOptions options = SmallChunks("death");
  options.use_pidfd = death.pidfd;
  if (death.levels) options.nodes = {0, 0, 1, 1};
  const int size = death.levels ? 4 : 3;
  SharedBoard board;
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < size; ++rank) {
    members.push_back(Member(options, rank, size, [&](Group& group) {
      // Rank 2 has a card too, and continues; the others are in host memory.
      FakeCard card{Bytes(kCount)};
      if (group.rank() == 1) {
        card.OnStep([&](Step step, int number) -> base::Result<void> {
          if (step != death.step || number != death.number) return {};
          board->died_at = Seconds();
          kill(getpid(), SIGKILL);
          return {};
        });
      }
      return CallUntilItFails(group, death.operation, group.rank() == 1 || group.rank() == 2 ? &card : nullptr);
    }));
  }
  std::vector<Outcome> outcomes;
  for (int rank = 0; rank < size; ++rank) {
    const std::string report = members[static_cast<std::size_t>(rank)].Report();
    if (rank == 1) {
      EXPECT_EQ(report, "killed");
    } else {
      outcomes.push_back(Outcome::FromText(report));
    }
  }
  ExpectSameEnd(outcomes, FULLDECK_ERROR_PEER_LOST, board->died_at);
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 is gone."));
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 died; it is in call "));
  EXPECT_THAT(outcomes[0].text, HasSubstr(std::string(NameOf(death.operation)) + "("));
}

// Killed at any instruction: each rank in turn, during calls of every kind.
class GroupKill : public ::testing::TestWithParam<bool> {};
std::string NameOfWatch(const ::testing::TestParamInfo<bool>& given) {
  return given.param ? "ByPidfd" : "ByConnection";
}
INSTANTIATE_TEST_SUITE_P(Watch, GroupKill, ::testing::Bool(), NameOfWatch);

TEST_P(GroupKill, AtARandomMomentEndsTheOthersInTime) {
  constexpr int kRanks = 3;
  double slowest = 0;
  for (int turn = 0; turn < 6; ++turn) {
    const int victim = turn % kRanks;
    GroupOptions options = SmallChunks("kill");
    options.use_pidfd = GetParam();
    SharedBoard board;
    std::vector<MemberProcess> members;
    for (int rank = 0; rank < kRanks; ++rank) {
      members.push_back(Member(options, rank, kRanks, [&](Group& group) {
        ++board->ready;
        for (std::uint64_t call = 0;; ++call) {
          const testing::Problem problem =
              testing::MakeProblem(static_cast<Operation>(1 + call % 9), Datatype::kInt32, Reduction::kSum,
                                   static_cast<int>(call % kRanks), call * 997 % 20000, kRanks, call);
          // Of the result only the final status matters.
          const std::string wrong = testing::Solve(group, problem, {});
          if (!wrong.empty()) {
            const Status status = group.Barrier();
            return wrong.find(status.text()) != std::string::npos ? Failed(group, status) : Outcome{1, 0, false, wrong};
          }
        }
      }));
    }
    ASSERT_TRUE(PollUntilTrue([&] { return board->ready == kRanks; }));
    testing::Draws draws(static_cast<std::uint64_t>(turn) + (GetParam() ? 100 : 0) +
                         static_cast<std::uint64_t>(getpid()));
    std::this_thread::sleep_for(std::chrono::microseconds(draws.Below(100000)));
    const double killed = Seconds();
    members[static_cast<std::size_t>(victim)].Signal(SIGKILL);
    std::vector<Outcome> outcomes;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != victim) outcomes.push_back(Outcome::FromText(members[static_cast<std::size_t>(rank)].Report()));
    }
    ExpectSameEnd(outcomes, FULLDECK_ERROR_PEER_LOST, killed);
    for (const Outcome& outcome : outcomes) slowest = std::max(slowest, outcome.at - killed);
    EXPECT_THAT(outcomes[0].text, HasSubstr("rank " + std::to_string(victim) + " died"));
  }
  RecordProperty("slowest_survivor_ms", static_cast<int>(slowest * 1000));
}

TEST(GroupFailure, NamesAllThatAreDead) {
  const GroupOptions options = SmallChunks("two die");
  SharedBoard board;
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < 4; ++rank) {
    members.push_back(Member(options, rank, 4, [&](Group& group) {
      ++board->ready;
      PollUntilTrue([&] { return board->go == 1 && group.rank() % 2 == 0; }, std::chrono::minutes(2));
      return Failed(group, group.Barrier());
    }));
  }
  ASSERT_TRUE(PollUntilTrue([&] { return board->ready == 4; }));
  members[1].Signal(SIGKILL);
  members[3].Signal(SIGKILL);
  ASSERT_EQ(members[1].Report() + members[3].Report(), "killedkilled");
  const double since = Seconds();
  board->go = 1;
  const std::vector<Outcome> outcomes = {Outcome::FromText(members[0].Report()),
                                         Outcome::FromText(members[2].Report())};
  ExpectSameEnd(outcomes, FULLDECK_ERROR_PEER_LOST, since);
  EXPECT_THAT(outcomes[0].text, HasSubstr("ranks 1, 3 are gone."));
}

TEST(GroupFailure, EndsSendAndReceiveOfADeadRankWhileOthersLive) {
  const GroupOptions options = SmallChunks("messages");
  SharedBoard board;
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < 4; ++rank) {
    members.push_back(Member(options, rank, 4, [&](Group& group) {
      ++board->ready;
      std::vector<char> data(1000000);
      Status status;
      switch (group.rank()) {
        case 0:
          status = group.Receive(data.data(), data.size(), 1, 0, nullptr);
          break;
        case 1:
          PollUntilTrue([] { return false; }, std::chrono::minutes(2));
          break;
        case 2:
          status = group.Send(data.data(), data.size(), 1, 0);
          break;
        default:  // not affected by the dead member
          PollUntilTrue([&] { return board->go == 2; }, std::chrono::minutes(2));
      }
      ++board->go;
      return Outcome{status.code(), Seconds(), true, status.text()};
    }));
  }
  ASSERT_TRUE(PollUntilTrue([&] { return board->ready == 4; }));
  const double killed = Seconds();
  members[1].Signal(SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    const Outcome outcome = Outcome::FromText(members[rank].Report());
    EXPECT_EQ(outcome.code, FULLDECK_ERROR_PEER_LOST) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
    EXPECT_LT(outcome.at - killed, kBoundSeconds);
  }
  EXPECT_EQ(Outcome::FromText(members[3].Report()).code, FULLDECK_OK);
}

// ---- leaving ----

// A rank that has done its part may leave, however long the others take for theirs.
TEST(GroupFailure, DoesNotMissARankThatLeftAfterItsLastCall) {
  for (int turn = 0; turn < 8; ++turn) {
    GroupOptions options = SmallChunks("leaves");
    options.use_pidfd = turn % 2 == 0;
    std::vector<MemberProcess> members;
    for (int rank = 0; rank < 4; ++rank) {
      members.push_back(Member(options, rank, 4, [&](Group& group) {
        std::vector<std::int32_t> values(static_cast<std::size_t>(turn) * 3000 + 1, 1);
        FakeCard card{Bytes(values.size() * 4)};
        // The slow one delays every chunk out.
        card.OnStep([&](Step step, int /*number*/) -> base::Result<void> {
          if (step == Step::kFinishOut) std::this_thread::sleep_for(std::chrono::milliseconds(30));
          return {};
        });
        const Buffer buffer = group.rank() == 2 ? Buffer::Staged(card) : Buffer::Host(values.data());
        const Status status = group.AllReduce(buffer, buffer, values.size(), Datatype::kInt32, Reduction::kSum);
        return Outcome{status.code(), 0, true, status.text()};
      }));
    }
    for (MemberProcess& member : members) {
      const Outcome outcome = Outcome::FromText(member.Report());
      EXPECT_EQ(outcome.code, FULLDECK_OK) << outcome.text;
    }
  }
}

TEST(GroupFailure, SaysThatARankLeftWhileOthersStillCall) {
  const GroupOptions options = SmallChunks("left");
  SharedBoard board;
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < 3; ++rank) {
    members.push_back(MemberProcess([&, rank] {
      Group::CreateResult made = Group::Create(OptionsOf(options, rank, 3));
      if (made.group == nullptr) return made.status.text();
      if (Status status = made.group->Barrier(); !status.ok()) return status.text();
      if (rank == 1) {
        board->died_at = Seconds();
        made.group.reset();
        // The process lives on: it only left the group.
        PollUntilTrue([&] { return board->go == 2; });
        return std::string("left");
      }
      const Outcome outcome = Failed(*made.group, made.group->Barrier());
      ++board->go;
      return outcome.ToText();
    }));
  }
  const std::vector<Outcome> outcomes = {Outcome::FromText(members[0].Report()),
                                         Outcome::FromText(members[2].Report())};
  EXPECT_EQ(members[1].Report(), "left");
  ExpectSameEnd(outcomes, FULLDECK_ERROR_PEER_LOST, board->died_at);
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 left the group; it has finished call 1, barrier()"));
}

// ---- stopping ----

TEST(GroupFailure, TimesOutOnAStoppedRankAndReportsWhereEachOneIs) {
  for (const bool pidfd : {true, false}) {
    GroupOptions options = SmallChunks("stopped");
    options.use_pidfd = pidfd;
    SharedBoard board;
    std::vector<MemberProcess> members;
    for (int rank = 0; rank < 3; ++rank) {
      members.push_back(Member(options, rank, 3, [&](Group& group) {
        std::vector<float> values(100);
        const Buffer buffer = Buffer::Host(values.data());
        for (int i = 0; i < 3; ++i) {
          if (Status status = group.Barrier(); !status.ok()) return Failed(group, status);
        }
        group.SetTimeout(std::chrono::milliseconds(1500));
        if (group.rank() == 2) {
          board->died_at = Seconds();
          raise(SIGSTOP);
        }
        return Failed(group, group.AllReduce(buffer, buffer, 100, Datatype::kFloat32, Reduction::kSum));
      }));
    }
    std::vector<Outcome> outcomes = {Outcome::FromText(members[0].Report()), Outcome::FromText(members[1].Report())};
    ExpectSameEnd(outcomes, FULLDECK_ERROR_TIMEOUT, board->died_at, 1.5 + kBoundSeconds);
    EXPECT_GT(outcomes[0].at - board->died_at, 1.0);
    const std::string& text = outcomes[0].text;
    EXPECT_THAT(text, HasSubstr("call 4, all_reduce(sum, float32 × 100): waited 1.5 s for rank 2."));
    EXPECT_THAT(text, HasSubstr("rank 0 is in call 4, all_reduce(sum, float32 × 100)"));
    EXPECT_THAT(text, HasSubstr("rank 1 is in call 4, all_reduce(sum, float32 × 100)"));
    EXPECT_THAT(text, HasSubstr("rank 2 has finished call 3, barrier() (pid " + std::to_string(members[2].pid()) +
                                ", stopped (SIGSTOP))"));
    // It continues and gets the same failure.
    members[2].Signal(SIGCONT);
    outcomes.push_back(Outcome::FromText(members[2].Report()));
    ExpectSameEnd(outcomes, FULLDECK_ERROR_TIMEOUT, Seconds());
  }
}

TEST(GroupFailure, TimesOutOnARankThatMakesNoCall) {
  const GroupOptions options = SmallChunks("no call");
  SharedBoard board;
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < 3; ++rank) {
    members.push_back(Member(options, rank, 3, [&](Group& group) {
      group.SetTimeout(std::chrono::milliseconds(700));
      if (group.rank() == 0) {
        PollUntilTrue([&] { return board->go == 2; }, std::chrono::minutes(1));
        return Failed(group, group.CurrentStatus());
      }
      const Outcome outcome = Failed(group, group.Barrier());
      ++board->go;
      return outcome;
    }));
  }
  std::vector<Outcome> outcomes;
  for (MemberProcess& member : members) outcomes.push_back(Outcome::FromText(member.Report()));
  ExpectSameEnd(outcomes, FULLDECK_ERROR_TIMEOUT, Seconds());
  EXPECT_THAT(outcomes[0].text, HasSubstr("for rank 0."));
  EXPECT_THAT(outcomes[0].text,
              HasSubstr("rank 0 has made no call yet (pid " + std::to_string(members[0].pid()) + ", "));
}

// ---- mismatched collectives ----

struct Desync {
  const char* name;
  const char* expected_text;
  std::function<Status(Group&, Buffer, std::vector<Buffer>&)> usual;
  std::function<Status(Group&, Buffer, std::vector<Buffer>&)> other;  // made by rank 1
};
class GroupDesync : public ::testing::TestWithParam<Desync> {};
using Buffers = std::vector<Buffer>;
Status Sum(Group& group, Buffer data, std::uint64_t count) {
  return group.AllReduce(data, data, count, Datatype::kFloat32, Reduction::kSum);
}
const auto kUsual = [](Group& group, Buffer data, Buffers&) { return Sum(group, data, 9000); };
const char kUsualText[] = "ranks 0, 2: all_reduce(sum, float32 × 9000)";
std::string NameOfDesync(const ::testing::TestParamInfo<Desync>& given) {
  return given.param.name;
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, GroupDesync,
    ::testing::Values(Desync{"Operation", "rank 1: barrier()", kUsual,
                             [](Group& group, Buffer, Buffers&) { return group.Barrier(); }},
                      Desync{"OperationOfTheSameLength", "rank 1: broadcast(float32 × 9000, root 0)", kUsual,
                             [](Group& group, Buffer data, Buffers&) {
                               return group.Broadcast(data, 9000, Datatype::kFloat32, 0);
                             }},
                      Desync{"Type", "rank 1: all_reduce(sum, int32 × 9000)", kUsual,
                             [](Group& group, Buffer data, Buffers&) {
                               return group.AllReduce(data, data, 9000, Datatype::kInt32, Reduction::kSum);
                             }},
                      Desync{"Count", "rank 1: all_reduce(sum, float32 × 8999)", kUsual,
                             [](Group& group, Buffer data, Buffers&) { return Sum(group, data, 8999); }},
                      Desync{"ShortAndLong", "rank 1: all_reduce(sum, float32 × 1)", kUsual,
                             [](Group& group, Buffer data, Buffers&) { return Sum(group, data, 1); }},
                      Desync{"Reduction", "rank 1: all_reduce(max, float32 × 9000)", kUsual,
                             [](Group& group, Buffer data, Buffers&) {
                               return group.AllReduce(data, data, 9000, Datatype::kFloat32, Reduction::kMax);
                             }},
                      Desync{"Root", "rank 1: reduce(sum, float32 × 5, root 2)",
                             [](Group& group, Buffer data, Buffers&) {
                               return group.Reduce(data, data, 5, Datatype::kFloat32, Reduction::kSum, 0);
                             },
                             [](Group& group, Buffer data, Buffers&) {
                               return group.Reduce(data, data, 5, Datatype::kFloat32, Reduction::kSum, 2);
                             }},
                      Desync{"Order", "rank 1: broadcast(float32 × 8, root 0)",
                             [](Group& group, Buffer data, Buffers&) {
                               if (Status status = Sum(group, data, 20); !status.ok()) return status;
                               return group.Broadcast(data, 8, Datatype::kFloat32, 0);
                             },
                             [](Group& group, Buffer data, Buffers&) {
                               if (Status status = group.Broadcast(data, 8, Datatype::kFloat32, 0); !status.ok())
                                 return status;
                               return Sum(group, data, 20);
                             }},
                      Desync{"PartsOfAnAllToAll", "rank 1 sends 7 elements to rank 0, which expects 5",
                             [](Group& group, Buffer data, Buffers& outputs) {
                               std::vector<RankBuffer> in(3, RankBuffer{data, 5});
                               std::vector<RankBuffer> out;
                               for (const Buffer& output : outputs) out.push_back({output, 5});
                               return group.AllToAll(in, out, Datatype::kFloat32);
                             },
                             [](Group& group, Buffer data, Buffers& outputs) {
                               std::vector<RankBuffer> in(3, RankBuffer{data, 7});
                               std::vector<RankBuffer> out;
                               for (const Buffer& output : outputs) out.push_back({output, 5});
                               return group.AllToAll(in, out, Datatype::kFloat32);
                             }}),
    NameOfDesync);

TEST_P(GroupDesync, IsReportedToAllAtOnceWithWhoCalledWhat) {
  const GroupOptions options = SmallChunks("desync");
  std::vector<MemberProcess> members;
  const double since = Seconds();
  for (int rank = 0; rank < 3; ++rank) {
    members.push_back(Member(options, rank, 3, [&](Group& group) {
      std::vector<float> values(9000);
      std::vector<float> results(9000);
      Buffers parts;
      for (std::size_t other = 0; other < 3; ++other) parts.push_back(Buffer::Host(results.data() + other * 100));
      const auto& call = group.rank() == 1 ? GetParam().other : GetParam().usual;
      return Failed(group, call(group, Buffer::Host(values.data()), parts));
    }));
  }
  std::vector<Outcome> outcomes;
  for (MemberProcess& member : members) outcomes.push_back(Outcome::FromText(member.Report()));
  ExpectSameEnd(outcomes, FULLDECK_ERROR_MISMATCH, since, 60);
  EXPECT_THAT(outcomes[0].text, HasSubstr(GetParam().expected_text));
  if (outcomes[0].text.find("9000") != std::string::npos) {
    EXPECT_THAT(outcomes[0].text, HasSubstr(kUsualText));
  }
}

// One rank skips a call: the others are one ahead from then on, and the first call that differs reveals it.
TEST(GroupFailure, ReportsACallThatOneRankLeftOut) {
  const GroupOptions options = SmallChunks("left out");
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < 2; ++rank) {
    members.push_back(Member(options, rank, 2, [&](Group& group) {
      float value = 0;
      const Buffer buffer = Buffer::Host(&value);
      for (int i = 0; i < 10; ++i) {
        if (group.rank() == 1 && i == 5) continue;
        const Status status = i % 2 == 0 ? group.Barrier() : group.Broadcast(buffer, 1, Datatype::kFloat32, 0);
        if (!status.ok()) return Failed(group, status);
      }
      return Outcome{};
    }));
  }
  std::vector<Outcome> outcomes;
  for (MemberProcess& member : members) outcomes.push_back(Outcome::FromText(member.Report()));
  ExpectSameEnd(outcomes, FULLDECK_ERROR_MISMATCH, Seconds());
  EXPECT_THAT(outcomes[0].text, HasSubstr("as call 6: rank 0: broadcast(float32 × 1, root 0); rank 1: barrier()"));
}

// ---- creation ----

TEST(GroupFailure, OfMemoryThatOneRankCannotHaveIsAnErrorOnAll) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs more address space than this test allows";
#endif
  GroupOptions options = SmallChunks("no memory");
  options.chunk_bytes = std::uint64_t{64} << 20;
  options.timeout = std::chrono::seconds(20);
  std::vector<MemberProcess> members;
  const double since = Seconds();
  for (int rank = 0; rank < 3; ++rank) {
    members.push_back(MemberProcess([&, rank] {
      GroupOptions own = options;
      if (rank == 1) {
        // Room for chunks of a page, but not for those that rank 0 chooses.
        own.chunk_bytes = 4096;
        struct rlimit limit = {};
        limit.rlim_cur = limit.rlim_max = std::uint64_t{20} << 40;
        setrlimit(RLIMIT_AS, &limit);
      }
      Group::CreateResult made = Group::Create(OptionsOf(own, rank, 3));
      return Outcome{made.status.code(), Seconds(), true, made.status.text()}.ToText();
    }));
  }
  std::vector<Outcome> outcomes;
  for (MemberProcess& member : members) outcomes.push_back(Outcome::FromText(member.Report()));
  ExpectSameEnd(outcomes, FULLDECK_ERROR_SYSTEM, since, 15);
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 has no address space for pieces of 64"));
}

TEST(GroupFailure, OfARankThatCannotMakeItsMemoryIsAnErrorOnAll) {
  GroupOptions options = SmallChunks("no files");
  options.timeout = std::chrono::seconds(30);
  std::vector<MemberProcess> members;
  const double since = Seconds();
  for (int rank = 0; rank < 3; ++rank) {
    members.push_back(MemberProcess([&, rank] {
      if (rank == 1) {
        struct rlimit limit = {};
        limit.rlim_cur = limit.rlim_max = 1 << 20;
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      Group::CreateResult made = Group::Create(OptionsOf(options, rank, 3));
      return Outcome{made.status.code(), Seconds(), true, made.status.text()}.ToText();
    }));
  }
  for (MemberProcess& member : members) {
    const Outcome outcome = Outcome::FromText(member.Report());
    EXPECT_EQ(outcome.code, FULLDECK_ERROR_SYSTEM) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("ulimit -f"));
    EXPECT_LT(outcome.at - since, 20);
  }
}

}  // namespace
}  // namespace fulldeck::collectives
