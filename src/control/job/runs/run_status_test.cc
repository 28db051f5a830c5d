#include "job/runs/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "fulldeck/rank_board.h"

namespace fulldeck::job {
namespace {

using namespace std::chrono_literals;
using ::testing::SizeIs;

// This process acts as the supervisor and every rank.
class RunStatusTest : public ::testing::Test {
 protected:
  RunStatusTest() {
    entry_.alive = true;
    entry_.record.run_id = "run";
    entry_.record.supervisor = wire::ThisProcess();
    entry_.record.pid_space = ThisPidSpace();
    entry_.record.first_rank = 4;
    entry_.record.cards = {RegisteredCard{"gcu 0", "A"}, RegisteredCard{"gcu 1", "B"}};
    entry_.record.ranks = {{0, wire::ThisProcess()}, {1, wire::ThisProcess()}};
  }
  wire::RankBoard MakeBoard() {
    auto board = wire::RankBoard::Create({"run", 0, 2, 4, 8, 0});
    EXPECT_TRUE(board.ok()) << board.error().message;
    entry_.record.board_fd = board->fd();
    return std::move(*board);
  }
  void Supervise(wire::RankBoard& board, int local_rank, wire::RankState state, int wait_status = 0,
                 wire::ProcessIdentity process = wire::ThisProcess()) {
    wire::Supervision supervision;
    supervision.process = process;
    supervision.state = state;
    supervision.wait_status = wait_status;
    board.WriteSupervision(local_rank, supervision);
  }
  RunStatus Read() { return reader_.Read(entry_); }

  RunRegistry::Entry entry_;
  base::ManualClock clock_;
  RunStatusReader reader_{clock_};
};

TEST_F(RunStatusTest, WithoutABoardReportsWhatProcKnows) {
  const RunStatus status = Read();
  EXPECT_EQ(status.state, "running");
  ASSERT_THAT(status.ranks, SizeIs(2));
  EXPECT_EQ(status.ranks[1].rank, 5);
  EXPECT_EQ(status.ranks[1].pid, getpid());
  EXPECT_EQ(status.ranks[1].state, "running");
  EXPECT_EQ(status.ranks[1].card->name, "gcu 1");
  EXPECT_GT(status.ranks[0].resident_bytes.value_or(0), 100'000U);
  EXPECT_FALSE(status.ranks[0].cpu_percent) << "that takes two readings";
  EXPECT_FALSE(status.step);
  EXPECT_FALSE(status.board_problem);
}

TEST_F(RunStatusTest, BeforeTheRanksAreThereIsStarting) {
  entry_.record.ranks.clear();
  const RunStatus status = Read();
  EXPECT_EQ(status.state, "starting");
  ASSERT_THAT(status.ranks, SizeIs(2));
  EXPECT_FALSE(status.ranks[0].pid);
}

TEST_F(RunStatusTest, ReportsWhyABoardCannotBeRead) {
  entry_.record.board_fd = 0x7fff;
  const RunStatus status = Read();
  EXPECT_TRUE(status.board_problem);
  EXPECT_EQ(status.ranks[0].state, "running");
}

TEST_F(RunStatusTest, ReportsEndedAndStoppedRanks) {
  wire::RankBoard board = MakeBoard();
  Supervise(board, 0, wire::RankState::kExited, 3 << 8, {getpid(), 7});
  Supervise(board, 1, wire::RankState::kStopped);
  RunStatus status = Read();
  EXPECT_EQ(status.ranks[0].state, "exited with code 3");
  EXPECT_FALSE(status.ranks[0].alive);
  EXPECT_EQ(status.ranks[1].state, "stopped");
  EXPECT_EQ(status.state, "running, 1 of 2 ranks ended, 1 of 2 ranks stopped");
  Supervise(board, 0, wire::RankState::kKilled, SIGKILL, {getpid(), 7});
  status = Read();
  EXPECT_EQ(status.ranks[0].state, "killed by signal 9");
}

TEST_F(RunStatusTest, ComparesTwoReadings) {
  wire::RankBoard board = MakeBoard();
  Supervise(board, 0, wire::RankState::kRunning);
  Supervise(board, 1, wire::RankState::kRunning);
  setenv("FULLDECK_BOARD_FD", std::to_string(board.fd()).c_str(), 1);
  setenv("FULLDECK_BOARD_SLOT", "0", 1);
  entry_.record.ranks.pop_back();  // two ranks in one process would share its figures
  entry_.record.cards.pop_back();
  fulldeck_board* writer = nullptr;
  ASSERT_EQ(fulldeck_board_open(&writer), 0) << fulldeck_board_error();
  fulldeck_board_figures figures{};
  figures.struct_bytes = sizeof figures;
  figures.step = 10;
  figures.total_steps = 100;
  figures.samples = 320;
  figures.has_loss = 1;
  figures.loss = 0.5;
  ASSERT_EQ(fulldeck_board_step(writer, &figures), 0);
  RunStatus status = Read();
  EXPECT_EQ(status.step, 10U);
  EXPECT_EQ(status.total_steps, 100U);
  EXPECT_EQ(status.ranks[0].loop->loss, 0.5);
  EXPECT_FALSE(status.ranks[0].samples_per_second);

  figures.step = 20;
  figures.samples = 640;
  ASSERT_EQ(fulldeck_board_step(writer, &figures), 0);
  const auto ticks_before = wire::ReadProcessStat(getpid())->cpu_ticks;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (wire::ReadProcessStat(getpid())->cpu_ticks < ticks_before + 5 && std::chrono::steady_clock::now() < deadline) {
  }
  clock_.Advance(2s);
  status = Read();
  EXPECT_DOUBLE_EQ(status.ranks[0].samples_per_second.value_or(0), 160);
  EXPECT_GE(status.ranks[0].cpu_percent.value_or(0), 2);
  fulldeck_board_close(writer);
  unsetenv("FULLDECK_BOARD_FD");
  unsetenv("FULLDECK_BOARD_SLOT");
}

TEST_F(RunStatusTest, OfADeadLauncherReportsWhatLives) {
  entry_.alive = false;
  entry_.record.supervisor.start_ticks += 1;
  entry_.record.ranks[1].process.start_ticks += 1;
  EXPECT_EQ(Read().state, "left behind, 1 process alive");
  entry_.record.ranks.clear();
  EXPECT_EQ(Read().state, "left behind");
  entry_.record.ranks = {{0, wire::ThisProcess()}};
  entry_.record.pid_space = "another-boot/pid:[1]";
  EXPECT_EQ(Read().state, "left behind") << "the pid is somebody else's";
}

TEST_F(RunStatusTest, SurvivesAnEntryThatContradictsItself) {
  entry_.record.ranks = {{4000, wire::ThisProcess()}, {0, {-5, 0}}, {1, {1 << 30, 1}}};
  const RunStatus status = Read();
  ASSERT_THAT(status.ranks, SizeIs(3));
  EXPECT_EQ(status.ranks[1].state, "gone");
}

}  // namespace
}  // namespace fulldeck::job
