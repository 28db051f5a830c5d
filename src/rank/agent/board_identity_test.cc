#include "agent/board_identity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "base/files/unique_fd.h"
#include "fulldeck/rank_board.h"
#include "wire/rank_board.h"
#include "wire/variables.h"

namespace fulldeck::agent {
namespace {

class BoardIdentity : public ::testing::Test {
 protected:
  BoardIdentity() : board_(wire::RankBoard::Create({.run_id = "run", .local_ranks = 2, .world_size = 2})) {
    if (board_.ok()) fd_.Reset(dup(board_->fd()));
    Set(wire::kBoardFdVariable, std::to_string(fd_.get()));
    Set(wire::kBoardSlotVariable, "1");
  }
  ~BoardIdentity() override {
    unsetenv(wire::kBoardFdVariable);
    unsetenv(wire::kBoardSlotVariable);
  }
  static void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  bool ClosesOnExec() const { return (fcntl(fd_.get(), F_GETFD) & FD_CLOEXEC) != 0; }

  base::Result<wire::RankBoard> board_;
  base::UniqueFd fd_;
};

TEST_F(BoardIdentity, SaysWhoTheRankIsAndKeepsTheDescriptorFromItsChildren) {
  ASSERT_TRUE(board_.ok());
  fulldeck_board_close(WriteIdentity("python3.11", true));
  const auto process = board_->ReadProcess(1);
  ASSERT_TRUE(process.has_value());
  EXPECT_EQ(process->process.pid, getpid());
  EXPECT_EQ(process->program, "python3.11");
  EXPECT_EQ(process->loaded, static_cast<std::uint32_t>(FULLDECK_BOARD_AGENT));
  EXPECT_FALSE(board_->ReadProcess(0).has_value());
  EXPECT_TRUE(ClosesOnExec());
}

TEST_F(BoardIdentity, LeavesTheDescriptorToTheProgramThatAWrapperBecomes) {
  ASSERT_TRUE(board_.ok());
  fulldeck_board_close(WriteIdentity("bash", false));
  EXPECT_FALSE(ClosesOnExec());
  EXPECT_EQ(board_->ReadProcess(1)->program, "bash");
}

TEST_F(BoardIdentity, TouchesNoDescriptorThatIsNoBoard) {
  const base::UniqueFd other(open("/dev/null", O_RDONLY));  // inherited by children, as the program intends
  Set(wire::kBoardFdVariable, std::to_string(other.get()));
  fulldeck_board_close(WriteIdentity("python3.11", true));
  EXPECT_EQ(fcntl(other.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(BoardIdentity, ReportsVariablesThatMakeNoSense) {
  Set(wire::kBoardFdVariable, "seven");
  ::testing::internal::CaptureStderr();
  fulldeck_board_close(WriteIdentity("python3.11", true));
  const std::string output = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(output.rfind("fulldeck: warning: ", 0), 0U) << output;
}

TEST_F(BoardIdentity, IsQuietWithoutABoard) {
  unsetenv(wire::kBoardFdVariable);
  ::testing::internal::CaptureStderr();
  fulldeck_board_close(WriteIdentity("python3.11", true));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace fulldeck::agent
