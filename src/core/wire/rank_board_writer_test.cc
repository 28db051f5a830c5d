#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "fulldeck/rank_board.h"
#include "wire/process_identity.h"
#include "wire/rank_board.h"
#include "wire/rank_board_layout.h"
#include "wire/variables.h"

namespace fulldeck::wire {
namespace {

using ::testing::HasSubstr;

void Set(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);
}

// The rank's side of a board of two ranks; this process is the second.
class BoardWriter : public ::testing::Test {
 protected:
  BoardWriter() : board_(std::move(*RankBoard::Create({"run", 0, 2, 0, 2}))) {
    Set(kBoardFdVariable, std::to_string(board_.fd()));
    Set(kBoardSlotVariable, "1");
  }
  ~BoardWriter() override {
    fulldeck_board_close(mine_);
    unsetenv(kBoardFdVariable);
    unsetenv(kBoardSlotVariable);
  }
  fulldeck_board* Open() {
    EXPECT_EQ(fulldeck_board_open(&mine_), 0) << fulldeck_board_error();
    return mine_;
  }
  Collective Group(int slot) {
    const auto read = board_.ReadCollective(1, slot);
    EXPECT_TRUE(read);
    return read.value_or(Collective{});
  }

  RankBoard board_;
  fulldeck_board* mine_ = nullptr;
};

fulldeck_board_figures Figures(std::uint64_t step) {
  fulldeck_board_figures figures{};
  figures.struct_bytes = sizeof figures;
  figures.step = step;
  figures.samples = step * 3;
  figures.data_ns = step * 5;
  figures.compute_ns = step * 7;
  figures.communication_ns = step * 11;
  return figures;
}

fulldeck_board_collective AllReduce(std::uint64_t count = 1000) {
  fulldeck_board_collective call{};
  call.struct_bytes = sizeof call;
  call.operation = FULLDECK_BOARD_ALL_REDUCE;
  call.datatype = FULLDECK_BOARD_FLOAT32;
  call.root = -1;
  call.count = count;
  call.bytes = count * 4;
  return call;
}

// Runs in a forked child and returns whether it exited with 0.
template <typename Work>
bool InChild(const Work& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

TEST_F(BoardWriter, ReportsWhichProcessTheRankIs) {
  Open();
  fulldeck_board_identity(mine_, FULLDECK_BOARD_AGENT, "train.py");
  fulldeck_board_identity(mine_, FULLDECK_BOARD_HOOK, nullptr);
  const auto process = board_.ReadProcess(1);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->process.pid, getpid());
  EXPECT_EQ(process->process.start_ticks, ThisProcess().start_ticks);
  EXPECT_EQ(process->loaded, std::uint32_t{FULLDECK_BOARD_AGENT | FULLDECK_BOARD_HOOK});
  EXPECT_EQ(process->program, "train.py");
  EXPECT_GT(process->since_ns, board_.run().made_ns);
  EXPECT_FALSE(board_.ReadProcess(0)) << "the other rank's record";
}

TEST_F(BoardWriter, ReportsTheSignalForStacksOfTheVeryProcessAndNoOtherSignal) {
  Open();
  fulldeck_board_stack_signal(mine_, SIGRTMAX - 5);
  EXPECT_FALSE(board_.ReadProcess(1)) << "it has not told who it is";
  fulldeck_board_identity(mine_, FULLDECK_BOARD_AGENT, "train.py");
  EXPECT_EQ(board_.ReadProcess(1)->stack_signal, 0);
  fulldeck_board_stack_signal(mine_, SIGRTMAX - 5);
  fulldeck_board_identity(mine_, FULLDECK_BOARD_RUNTIME, nullptr);
  EXPECT_EQ(board_.ReadProcess(1)->stack_signal, SIGRTMAX - 5);
  for (const int other : {SIGKILL, SIGRTMIN - 1, SIGRTMAX + 1, 0}) {
    fulldeck_board_stack_signal(mine_, other);
    EXPECT_EQ(board_.ReadProcess(1)->stack_signal, 0) << other;
  }
  fulldeck_board_stack_signal(nullptr, SIGRTMAX - 5);
}

TEST_F(BoardWriter, ForgetsTheProgramThatHadTheRecordBefore) {
  EXPECT_TRUE(InChild([this] {
    Open();
    fulldeck_board_identity(mine_, FULLDECK_BOARD_AGENT, "prepare.sh");
    return true;
  }));
  EXPECT_EQ(board_.ReadProcess(1)->program, "prepare.sh");
  Open();
  fulldeck_board_identity(mine_, FULLDECK_BOARD_RUNTIME, nullptr);
  EXPECT_EQ(board_.ReadProcess(1)->process.pid, getpid());
  EXPECT_EQ(board_.ReadProcess(1)->loaded, std::uint32_t{FULLDECK_BOARD_RUNTIME});
  EXPECT_EQ(board_.ReadProcess(1)->program, "");
}

TEST_F(BoardWriter, ReportsTheFiguresOfTheLoopAndKeepsThoseThatAnUpdateDoesNotName) {
  Open();
  fulldeck_board_phase(mine_, FULLDECK_BOARD_COMPUTE);
  fulldeck_board_memory(mine_, 1 << 20, 1 << 21);
  fulldeck_board_figures figures = Figures(12);
  figures.total_steps = 1000;
  figures.epoch = 3;
  figures.has_loss = 1;
  figures.loss = 0.25;
  figures.checkpoint_ns = 17;
  figures.batch_fingerprint = 0xabc;
  figures.parameters_fingerprint = 0xdef;
  EXPECT_EQ(fulldeck_board_step(mine_, &figures), 0);
  auto loop = board_.ReadLoop(1);
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->phase, Phase::kCompute);
  EXPECT_EQ(loop->step, 12U);
  EXPECT_EQ(loop->total_steps, 1000U);
  EXPECT_EQ(loop->epoch, 3U);
  EXPECT_EQ(loop->loss, 0.25);
  EXPECT_EQ(loop->samples, 36U);
  EXPECT_EQ(loop->data_ns, 60U);
  EXPECT_EQ(loop->compute_ns, 84U);
  EXPECT_EQ(loop->communication_ns, 132U);
  EXPECT_EQ(loop->checkpoint_ns, 17U);
  EXPECT_EQ(loop->memory_bytes, 1U << 20);
  EXPECT_EQ(loop->memory_peak_bytes, 1U << 21);
  EXPECT_EQ(loop->batch->value, 0xabcU);
  EXPECT_EQ(loop->last_step_ns, 0U) << "there was no step before";
  const std::uint64_t first_at = loop->step_at_ns;

  figures = Figures(13);
  figures.batch_fingerprint = 0x123;
  fulldeck_board_step(mine_, &figures);
  loop = board_.ReadLoop(1);
  EXPECT_EQ(loop->step, 13U);
  EXPECT_FALSE(loop->loss) << "this step had none";
  EXPECT_EQ(loop->batch->value, 0x123U);
  EXPECT_EQ(loop->batch->step, 13U);
  EXPECT_EQ(loop->parameters->value, 0xdefU);
  EXPECT_EQ(loop->parameters->step, 12U) << "the last one taken, with its own step";
  EXPECT_EQ(loop->memory_bytes, 1U << 20);
  EXPECT_EQ(loop->last_step_ns, loop->step_at_ns - first_at);
}

TEST_F(BoardWriter, KeepsTheFirstThreeBatchesForReadersThatComeLate) {
  Open();
  const auto first_batches = [&](std::uint64_t from, std::uint64_t fingerprint) {
    auto board = std::move(*RankBoard::Create({"run", 0, 2, 0, 2}));
    Set(kBoardFdVariable, std::to_string(board.fd()));
    fulldeck_board* writer = nullptr;
    EXPECT_EQ(fulldeck_board_open(&writer), 0) << fulldeck_board_error();
    for (std::uint64_t step = from; step < from + 9; ++step) {
      fulldeck_board_figures figures = Figures(step);
      if (step % 2 != 0) figures.batch_fingerprint = fingerprint + step / 6;
      fulldeck_board_step(writer, &figures);
      const auto loop = board.ReadLoop(1);
      EXPECT_EQ(loop->first_batches.has_value(), step >= from + 5) << step;
    }
    fulldeck_board_close(writer);
    return board.ReadLoop(1)->first_batches.value_or(0);
  };
  const std::uint64_t one = first_batches(0, 7);
  EXPECT_EQ(first_batches(0, 7), one);
  EXPECT_NE(first_batches(0, 8), one) << "other batches";
  EXPECT_NE(first_batches(6, 6), one) << "the same batches in other steps";
}

TEST_F(BoardWriter, ReportsReductionsOrdersAndFiles) {
  Open();
  fulldeck_board_figures figures = Figures(4);
  figures.reductions = 3;
  figures.unreduced_steps = 2;
  figures.repeated_orders = 1;
  fulldeck_board_step(mine_, &figures);
  fulldeck_board_saved(mine_, 77);
  const auto loop = board_.ReadLoop(1);
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->reductions, 3U);
  EXPECT_EQ(loop->unreduced_steps, 2U);
  EXPECT_EQ(loop->repeated_orders, 1U);
  EXPECT_EQ(loop->saved_file, 77U);
  EXPECT_EQ(loop->step, 4U);
  EXPECT_EQ(loop->last_step_ns, 0U) << "a file is no step";
  LoopBytes bytes{};
  bytes.first_batches_reported = kFirstBatches + 1;
  board_.RecordToWrite(1).loop.Write(bytes);
  EXPECT_FALSE(board_.ReadLoop(1)) << "damaged";
}

TEST_F(BoardWriter, ReportsALossThatIsNotANumberAsItIs) {
  Open();
  fulldeck_board_figures figures = Figures(1);
  figures.has_loss = 7;  // any nonzero value is true
  figures.loss = std::nan("");
  fulldeck_board_step(mine_, &figures);
  ASSERT_TRUE(board_.ReadLoop(1));
  EXPECT_TRUE(std::isnan(board_.ReadLoop(1)->loss.value_or(0)));
  figures.loss = -INFINITY;
  fulldeck_board_step(mine_, &figures);
  EXPECT_EQ(board_.ReadLoop(1)->loss, -INFINITY);
}

TEST_F(BoardWriter, TakesFiguresOfAnOlderHeaderAndRefusesThoseWithoutALength) {
  Open();
  fulldeck_board_figures figures = Figures(5);
  figures.epoch = 9;
  figures.struct_bytes = offsetof(fulldeck_board_figures, epoch);  // as if the struct had ended there
  EXPECT_EQ(fulldeck_board_step(mine_, &figures), 0);
  EXPECT_EQ(board_.ReadLoop(1)->step, 5U);
  EXPECT_EQ(board_.ReadLoop(1)->epoch, 0U);
  EXPECT_EQ(board_.ReadLoop(1)->samples, 0U);
  figures.struct_bytes = 0;
  figures.step = 6;
  EXPECT_EQ(fulldeck_board_step(mine_, &figures), -EINVAL);
  EXPECT_EQ(fulldeck_board_step(mine_, nullptr), -EINVAL);
  EXPECT_EQ(board_.ReadLoop(1)->step, 5U);
  figures.struct_bytes = 4096;  // a newer header: unknown fields are ignored
  EXPECT_EQ(fulldeck_board_step(mine_, &figures), 0);
  EXPECT_EQ(board_.ReadLoop(1)->step, 6U);
}

TEST_F(BoardWriter, SaysSinceWhenAPhaseLastsAndIgnoresPhasesThatAreNone) {
  Open();
  fulldeck_board_phase(mine_, FULLDECK_BOARD_DATA);
  const std::uint64_t since = board_.ReadLoop(1)->phase_since_ns;
  EXPECT_GT(since, 0U);
  fulldeck_board_phase(mine_, FULLDECK_BOARD_DATA);
  EXPECT_EQ(board_.ReadLoop(1)->phase_since_ns, since);
  for (const int phase : {0, -1, 12, 1 << 30}) fulldeck_board_phase(mine_, phase);
  EXPECT_EQ(board_.ReadLoop(1)->phase, Phase::kData);
  fulldeck_board_phase(mine_, FULLDECK_BOARD_CHECKPOINT);
  EXPECT_EQ(board_.ReadLoop(1)->phase, Phase::kCheckpoint);
  EXPECT_GE(board_.ReadLoop(1)->phase_since_ns, since);
}

TEST_F(BoardWriter, ReportsWhatARankObservedOfItsScriptForEachCheck) {
  Open();
  EXPECT_FALSE(board_.ReadObservation(1, FULLDECK_BOARD_CHECK_GROUP)) << "never observed";
  fulldeck_board_observe(mine_, FULLDECK_BOARD_CHECK_GRADIENTS, 1, 2, 6, 20, "head.weight");
  fulldeck_board_observe(mine_, FULLDECK_BOARD_CHECK_GROUP, 2, 0, 7, 0, nullptr);
  fulldeck_board_observe(mine_, FULLDECK_BOARD_CHECKS, 1, 0, 0, 0, nullptr);
  fulldeck_board_observe(mine_, -1, 1, 0, 0, 0, nullptr);
  fulldeck_board_observe(nullptr, FULLDECK_BOARD_CHECK_GROUP, 1, 0, 0, 0, nullptr);
  const auto gradients = board_.ReadObservation(1, FULLDECK_BOARD_CHECK_GRADIENTS);
  ASSERT_TRUE(gradients);
  EXPECT_EQ(gradients->state, 1U);
  EXPECT_EQ(gradients->value, 2U);
  EXPECT_EQ(gradients->count, 6U);
  EXPECT_EQ(gradients->step, 20U);
  EXPECT_EQ(gradients->text, "head.weight");
  const auto group = board_.ReadObservation(1, FULLDECK_BOARD_CHECK_GROUP);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->state, 2U);
  EXPECT_EQ(group->text, "");
  fulldeck_board_observe(mine_, FULLDECK_BOARD_CHECK_GROUP, 2, 0, 7, 0, std::string(300, 'x').c_str());
  EXPECT_EQ(board_.ReadObservation(1, FULLDECK_BOARD_CHECK_GROUP)->text.size(), 79U);
  EXPECT_FALSE(board_.ReadObservation(0, FULLDECK_BOARD_CHECK_GROUP)) << "of another rank";
}

TEST_F(BoardWriter, CountsHeartbeats) {
  Open();
  for (int i = 0; i < 3; ++i) fulldeck_board_heartbeat(mine_);
  EXPECT_EQ(board_.ReadHeartbeat(1)->count, 3U);
  EXPECT_TRUE(Age(board_.ReadHeartbeat(1)->at_ns, base::SteadyClock::Instance().Now()));
}

TEST_F(BoardWriter, ShowsACollectiveWhileItIsUnderWayAndWhenItIsDone) {
  Open();
  const int slot = fulldeck_board_group_join(mine_, 77, "data parallel of all", 8, 5);
  ASSERT_GE(slot, 0);
  EXPECT_EQ(Group(slot).group, 77U);
  EXPECT_EQ(Group(slot).name, "data parallel o");
  EXPECT_EQ(Group(slot).size, 8U);
  EXPECT_EQ(Group(slot).rank, 5U);
  EXPECT_FALSE(Group(slot).in_flight());
  const auto call = AllReduce();
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, slot, &call), 1U);
  Collective seen = Group(slot);
  EXPECT_TRUE(seen.in_flight());
  EXPECT_EQ(seen.operation, std::uint32_t{FULLDECK_BOARD_ALL_REDUCE});
  EXPECT_EQ(seen.datatype, std::uint32_t{FULLDECK_BOARD_FLOAT32});
  EXPECT_EQ(seen.count, 1000U);
  EXPECT_EQ(seen.bytes, 4000U);
  EXPECT_EQ(seen.root, -1);
  EXPECT_GT(seen.since_ns, 0U);
  fulldeck_board_collective_end(mine_, slot, 1);
  seen = Group(slot);
  EXPECT_FALSE(seen.in_flight());
  EXPECT_EQ(seen.waited_ns, seen.ended_ns - seen.since_ns);
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, slot, &call), 2U);
  EXPECT_TRUE(Group(slot).in_flight());
  fulldeck_board_collective_end(mine_, slot, 1);
  fulldeck_board_collective_end(mine_, slot, 3);
  EXPECT_TRUE(Group(slot).in_flight()) << "neither an old nor an unknown number ends it";
}

TEST_F(BoardWriter, CountsNoMomentTwiceWhereCollectivesOverlap) {
  Open();
  const int slot = fulldeck_board_group_join(mine_, 1, "world", 2, 0);
  const auto call = AllReduce();
  fulldeck_board_collective_begin(mine_, slot, &call);
  const std::uint64_t began = Group(slot).since_ns;
  fulldeck_board_collective_begin(mine_, slot, &call);
  fulldeck_board_collective_end(mine_, slot, 1);
  EXPECT_TRUE(Group(slot).in_flight());
  EXPECT_EQ(Group(slot).completed, 1U);
  fulldeck_board_collective_end(mine_, slot, 2);
  EXPECT_FALSE(Group(slot).in_flight());
  EXPECT_EQ(Group(slot).waited_ns, Group(slot).ended_ns - began);
}

TEST_F(BoardWriter, ShowsWhereTwoRanksCalledDifferentThings) {
  Open();
  const int one = fulldeck_board_group_join(mine_, 1, "one", 2, 0);
  const int two = fulldeck_board_group_join(mine_, 2, "two", 2, 1);
  const auto small = AllReduce(10);
  const auto large = AllReduce(11);
  fulldeck_board_collective_begin(mine_, one, &small);
  fulldeck_board_collective_begin(mine_, two, &small);
  EXPECT_EQ(Group(one).fingerprint, Group(two).fingerprint);
  EXPECT_EQ(Group(one).history, Group(two).history);
  fulldeck_board_collective_begin(mine_, one, &small);
  fulldeck_board_collective_begin(mine_, two, &large);
  EXPECT_NE(Group(one).fingerprint, Group(two).fingerprint);
  fulldeck_board_collective_begin(mine_, one, &small);
  fulldeck_board_collective_begin(mine_, two, &small);
  EXPECT_EQ(Group(one).fingerprint, Group(two).fingerprint);
  EXPECT_NE(Group(one).history, Group(two).history) << "they are the same again, and yet were not always";

  fulldeck_board_collective send = AllReduce();
  send.operation = FULLDECK_BOARD_SEND;
  send.fingerprint = 4242;
  send.sequence = 100;
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, one, &send), 100U);
  EXPECT_EQ(Group(one).fingerprint, 4242U);
  send.sequence = 0;
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, one, &send), 101U);
}

TEST_F(BoardWriter, StaysReadableWhenACallerRenumbersItsCallsOrGivesImpossibleValues) {
  Open();
  const int slot = fulldeck_board_group_join(mine_, 1, "world", 2, 0);
  fulldeck_board_collective call = AllReduce();
  call.sequence = 50;
  fulldeck_board_collective_end(mine_, slot, fulldeck_board_collective_begin(mine_, slot, &call));
  call.sequence = 1;
  call.operation = 99;
  call.datatype = 99;
  call.root = -7;
  fulldeck_board_collective_begin(mine_, slot, &call);
  const Collective seen = Group(slot);
  EXPECT_TRUE(seen.in_flight());
  EXPECT_EQ(seen.sequence, 1U);
  EXPECT_STREQ(OperationName(seen.operation), "other");
  EXPECT_STREQ(DatatypeName(seen.datatype), "other");
  EXPECT_EQ(seen.root, -1);
  call.struct_bytes = 0;
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, slot, &call), 0U);
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, slot, nullptr), 0U);
}

TEST_F(BoardWriter, GivesEveryGroupASlotOfItsOwnUntilThereAreNone) {
  Open();
  for (int i = 0; i < FULLDECK_BOARD_GROUPS; ++i) {
    EXPECT_EQ(fulldeck_board_group_join(mine_, 100 + static_cast<std::uint64_t>(i), "g", 2, 0), i);
  }
  EXPECT_EQ(fulldeck_board_group_join(mine_, 103, "again", 2, 0), 3);
  const int ninth = fulldeck_board_group_join(mine_, 200, "ninth", 2, 0);
  EXPECT_EQ(ninth, -ENOSPC);
  const auto call = AllReduce();
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, ninth, &call), 0U);
  fulldeck_board_collective_end(mine_, ninth, 1);
  fulldeck_board_group_leave(mine_, ninth);
  fulldeck_board_group_leave(mine_, FULLDECK_BOARD_GROUPS);

  fulldeck_board_group_leave(mine_, 5);
  Reading reading{};
  EXPECT_FALSE(board_.ReadCollective(1, 5, &reading));
  EXPECT_EQ(reading, Reading::kNeverWritten);
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, 5, &call), 0U) << "it was left";
  EXPECT_EQ(fulldeck_board_group_join(mine_, 200, "ninth", 2, 0), 5);
  EXPECT_EQ(Group(5).sequence, 0U);
  EXPECT_EQ(fulldeck_board_group_join(mine_, 0, "no id", 2, 0), -EINVAL);
  EXPECT_EQ(fulldeck_board_group_join(mine_, 9, "no such rank", 2, 2), -EINVAL);
}

TEST_F(BoardWriter, RestartsAGroupThatAProgramBeforeItNeverLeftAndTakesTheSlotsOfTheDead) {
  EXPECT_TRUE(InChild([this] {
    Open();
    const auto call = AllReduce();
    for (int i = 0; i < FULLDECK_BOARD_GROUPS; ++i) {
      const int slot = fulldeck_board_group_join(mine_, 100 + static_cast<std::uint64_t>(i), "before", 2, 0);
      fulldeck_board_collective_begin(mine_, slot, &call);
    }
    return true;
  }));
  Open();
  EXPECT_TRUE(Group(3).in_flight()) << "what it wrote stays until somebody needs the slot";
  EXPECT_EQ(fulldeck_board_group_join(mine_, 103, "now", 2, 1), 3);
  EXPECT_EQ(Group(3).name, "now");
  EXPECT_EQ(Group(3).sequence, 0U);
  EXPECT_EQ(Group(3).history, 0U);
  const auto call = AllReduce();
  EXPECT_EQ(fulldeck_board_collective_begin(mine_, 3, &call), 1U);
  EXPECT_EQ(fulldeck_board_group_join(mine_, 103, "again", 2, 1), 3);
  EXPECT_EQ(Group(3).sequence, 1U) << "our own is gone on with";
  for (const int slot : {0, 1, 2, 4, 5, 6, 7}) {
    EXPECT_EQ(fulldeck_board_group_join(mine_, 200 + static_cast<std::uint64_t>(slot), "now", 2, 0), slot);
  }
  EXPECT_EQ(fulldeck_board_group_join(mine_, 300, "one too many", 2, 0), -ENOSPC);
}

TEST_F(BoardWriter, GivesThreadsThatJoinAtOnceDifferentSlots) {
  Open();
  std::array<int, FULLDECK_BOARD_GROUPS> slots{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    threads.emplace_back([this, i, &slots] {
      slots[i] = fulldeck_board_group_join(mine_, i + 1, "g", 2, 0);
      const auto call = AllReduce(i);
      for (int n = 0; n < 1000; ++n) {
        fulldeck_board_collective_end(mine_, slots[i], fulldeck_board_collective_begin(mine_, slots[i], &call));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(Group(slots[i]).group, i + 1);
    EXPECT_EQ(Group(slots[i]).count, i);
    EXPECT_EQ(Group(slots[i]).completed, 1000U);
  }
}

TEST_F(BoardWriter, ReportsTheLastErrorCutAtTheEndOfACharacter) {
  Open();
  fulldeck_board_set_error(mine_, "first\nwith \x1b[31mtwo lines");
  EXPECT_EQ(board_.ReadError(1)->text, "first\nwith ?[31mtwo lines");
  const std::string fits(413, 'e');
  fulldeck_board_set_error(mine_, (fits + "\u732b and more").c_str());
  EXPECT_EQ(board_.ReadError(1)->text, fits);
  EXPECT_EQ(board_.ReadError(1)->count, 2U);
  EXPECT_GT(board_.ReadError(1)->at_ns, 0U);
  fulldeck_board_set_error(mine_, nullptr);
  EXPECT_EQ(board_.ReadError(1)->count, 2U);
}

TEST_F(BoardWriter, ReportsTheKindOfAFailureAndTheRankThatBeganIt) {
  Open();
  fulldeck_board_set_failure(mine_, FULLDECK_BOARD_FAILURE_PEER_LOST, 0, "rank 0 is gone");
  EXPECT_EQ(board_.ReadError(1)->code, FailureCode::kPeerLost);
  EXPECT_EQ(board_.ReadError(1)->culprit, 0);
  fulldeck_board_set_failure(mine_, FULLDECK_BOARD_FAILURE_DIFFERENT_CALLS, -1, "they differ");
  EXPECT_EQ(board_.ReadError(1)->code, FailureCode::kDifferentCalls);
  EXPECT_EQ(board_.ReadError(1)->culprit, -1);
  fulldeck_board_set_failure(mine_, 4711, 2, "of a later version, and of a rank that is not there");
  EXPECT_EQ(board_.ReadError(1)->code, FailureCode::kOther);
  EXPECT_EQ(board_.ReadError(1)->culprit, -1);
  fulldeck_board_set_error(mine_, "a text alone");
  EXPECT_EQ(board_.ReadError(1)->code, FailureCode::kNotReported);
}

TEST_F(BoardWriter, ReportsWhenItLeftAGroupAndWhatItsLogsLost) {
  Open();
  EXPECT_EQ(board_.LastLeave(1), 0U);
  const int slot = fulldeck_board_group_join(mine_, 77, "g", 2, 1);
  EXPECT_EQ(board_.LastLeave(1), 0U);
  fulldeck_board_group_leave(mine_, slot);
  EXPECT_GT(board_.LastLeave(1), 0U);
  EXPECT_FALSE(board_.ReadCollective(1, slot).has_value());
  EXPECT_EQ(board_.LostLogBytes(1), 0U);
  fulldeck_board_log_lost(mine_, 5);
  fulldeck_board_log_lost(mine_, 7);
  EXPECT_EQ(board_.LostLogBytes(1), 12U);
  fulldeck_board_log_lost(nullptr, 1);
}

TEST_F(BoardWriter, ReportsWhenTheProbeOfItsCardEnded) {
  Open();
  EXPECT_EQ(board_.Probed(1), 0U);
  fulldeck_board_probed(mine_);
  const std::uint64_t first = board_.Probed(1);
  EXPECT_LE(Age(first, base::SteadyClock::Instance().Now()), std::chrono::minutes(1));
  fulldeck_board_probed(mine_);
  EXPECT_GE(board_.Probed(1), first);
  EXPECT_GT(first, 0U);
  EXPECT_EQ(board_.Probed(0), 0U);
  fulldeck_board_probed(nullptr);
}

TEST_F(BoardWriter, TakesErrorsFromManyThreads) {
  Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      const std::string text(400, static_cast<char>('a' + i));
      for (int n = 0; n < 1000; ++n) fulldeck_board_set_error(mine_, text.c_str());
    });
  }
  const auto all_of_one_letter = [](const std::string& text) { return text == std::string(400, text[0]); };
  for (int n = 0; n < 1000; ++n) {
    const auto error = board_.ReadError(1);
    EXPECT_TRUE(!error || all_of_one_letter(error->text));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(all_of_one_letter(board_.ReadError(1)->text));
}

TEST_F(BoardWriter, MayBeANullBoardEverywhere) {
  const auto figures = Figures(1);
  const auto call = AllReduce();
  fulldeck_board_identity(nullptr, 1, "p");
  fulldeck_board_phase(nullptr, FULLDECK_BOARD_DATA);
  EXPECT_EQ(fulldeck_board_step(nullptr, &figures), 0);
  fulldeck_board_memory(nullptr, 1, 1);
  fulldeck_board_heartbeat(nullptr);
  EXPECT_EQ(fulldeck_board_group_join(nullptr, 1, "g", 1, 0), -EINVAL);
  EXPECT_EQ(fulldeck_board_collective_begin(nullptr, 0, &call), 0U);
  fulldeck_board_collective_end(nullptr, 0, 1);
  fulldeck_board_group_leave(nullptr, 0);
  fulldeck_board_set_error(nullptr, "e");
  fulldeck_board_close(nullptr);
}

TEST_F(BoardWriter, KeepsQuietInAForkedChildThatMayOpenTheBoardItself) {
  Open();
  fulldeck_board_heartbeat(mine_);
  EXPECT_TRUE(InChild([this] {
    fulldeck_board_heartbeat(mine_);
    fulldeck_board_phase(mine_, FULLDECK_BOARD_DATA);
    fulldeck_board_set_error(mine_, "a worker's");
    return fulldeck_board_group_join(mine_, 1, "g", 1, 0) == -EINVAL;
  }));
  EXPECT_EQ(board_.ReadHeartbeat(1)->count, 1U);
  EXPECT_FALSE(board_.ReadLoop(1));
  EXPECT_FALSE(board_.ReadError(1));
  EXPECT_TRUE(InChild([this] {
    Open();
    fulldeck_board_heartbeat(mine_);
    fulldeck_board_set_error(mine_, "its own");
    return true;
  }));
  EXPECT_EQ(board_.ReadHeartbeat(1)->count, 2U);
  EXPECT_EQ(board_.ReadError(1)->text, "its own");
  fulldeck_board_heartbeat(mine_);
  EXPECT_EQ(board_.ReadHeartbeat(1)->count, 3U);
}

TEST_F(BoardWriter, KeepsNoDescriptorOfItsOwn) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = count();
  Open();
  EXPECT_EQ(count(), before);
}

TEST_F(BoardWriter, SaysWhyThereIsNoBoard) {
  const auto fails = [this](int error, const char* says) {
    EXPECT_EQ(fulldeck_board_open(&mine_), -error) << says;
    EXPECT_EQ(mine_, nullptr);
    EXPECT_THAT(fulldeck_board_error(), HasSubstr(says));
  };
  for (const char* slot : {"2", "4096"}) {
    Set(kBoardSlotVariable, slot);
    fails(EINVAL, "the board has 2 records");
  }
  for (const char* slot : {"", "-1", "1x", "99999999999"}) {
    Set(kBoardSlotVariable, slot);
    fails(EINVAL, "leave them as fulldeck run set them");
  }
  Set(kBoardSlotVariable, "1");
  for (const char* fd : {"", "-1", "three", "99999999999"}) {
    Set(kBoardFdVariable, fd);
    fails(EINVAL, "leave them as fulldeck run set them");
  }
  Set(kBoardFdVariable, "98765");
  fails(ENOENT, "is closed");
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  Set(kBoardFdVariable, std::to_string(pipes[0]));
  fails(ENOENT, "it is something else by now");
  close(pipes[0]);
  close(pipes[1]);
  unsetenv(kBoardSlotVariable);
  fails(ENOENT, "FULLDECK_BOARD_SLOT is not set: this program was not started by fulldeck run");
  unsetenv(kBoardFdVariable);
  fails(ENOENT, "FULLDECK_BOARD_FD is not set");
}

TEST_F(BoardWriter, RefusesABoardOfAnOlderAndOfANewerVersionAndSaysWhatToDo) {
  for (const std::uint32_t version : {0U, 2U, 1000U}) {
    ASSERT_EQ(pwrite(board_.fd(), &version, sizeof version, 8), 4);
    EXPECT_EQ(fulldeck_board_open(&mine_), -EPROTO);
    EXPECT_THAT(fulldeck_board_error(),
                HasSubstr("has version " + std::to_string(version) +
                          ", this fulldeck speaks version 1: use the same fulldeck on both sides"));
  }
  const std::uint32_t right = 1;
  ASSERT_EQ(pwrite(board_.fd(), &right, sizeof right, 8), 4);
  Open();
}

TEST_F(BoardWriter, RefusesADamagedBoard) {
  const std::uint32_t ranks = 77;
  ASSERT_EQ(pwrite(board_.fd(), &ranks, sizeof ranks, offsetof(BoardHeaderBytes, local_ranks)), 4);
  EXPECT_EQ(fulldeck_board_open(&mine_), -EINVAL);
  EXPECT_THAT(fulldeck_board_error(), HasSubstr("is damaged"));
}

// Reads the loop of rank 1 until it reaches `steps`; every reading must come from a single step.
void ExpectWholeStepsUntil(const RankBoard& board, std::uint64_t steps) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  std::uint64_t last = 0;
  while (last < steps) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "at step " << last;
    const auto loop = board.ReadLoop(1);
    if (!loop) continue;
    ASSERT_GE(loop->step, last);
    ASSERT_EQ(loop->samples, loop->step * 3);
    ASSERT_EQ(loop->data_ns, loop->step * 5);
    ASSERT_EQ(loop->compute_ns, loop->step * 7);
    ASSERT_EQ(loop->communication_ns, loop->step * 11);
    last = loop->step;
  }
}

TEST_F(BoardWriter, IsReadConsistentlyWhileAThreadWrites) {
  Open();
  constexpr std::uint64_t kSteps = 50'000;
  std::thread writer([this] {
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      const auto figures = Figures(step);
      fulldeck_board_phase(mine_, step % 2 == 0 ? FULLDECK_BOARD_DATA : FULLDECK_BOARD_COMPUTE);
      fulldeck_board_step(mine_, &figures);
      fulldeck_board_memory(mine_, step, step);
    }
  });
  std::thread heartbeat([this] {
    for (int i = 0; i < 50'000; ++i) fulldeck_board_heartbeat(mine_);
  });
  ExpectWholeStepsUntil(board_, kSteps);
  writer.join();
  heartbeat.join();
  EXPECT_EQ(board_.ReadHeartbeat(1)->count, 50'000U);
}

TEST_F(BoardWriter, IsReadConsistentlyWhileAProcessWritesAndAfterItWasKilled) {
  for (int round = 0; round < 10; ++round) {
    const pid_t writer = fork();
    if (writer == 0) {
      if (fulldeck_board_open(&mine_) != 0) _exit(1);
      for (std::uint64_t step = board_.ReadLoop(1).value_or(Loop{}).step + 1;; ++step) {
        const auto figures = Figures(step);
        fulldeck_board_step(mine_, &figures);
      }
    }
    const std::uint64_t before = board_.ReadLoop(1).value_or(Loop{}).step;
    ExpectWholeStepsUntil(board_, before + 1000);
    kill(writer, SIGKILL);
    ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
    Reading reading{};
    ASSERT_TRUE(board_.ReadLoop(1, &reading));
    EXPECT_EQ(reading, Reading::kValue);
    ExpectWholeStepsUntil(board_, before + 1000);
  }
}

}  // namespace
}  // namespace fulldeck::wire
