#include "diagnosis/exit_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace fulldeck::diagnosis {
namespace {

using testing::HasSubstr;

int WaitStatus(int code) {
  return code << 8;
}

TEST(ExitStatus, ReportsAll256ExitCodesAsTheyAre) {
  for (int code = 0; code < 256; ++code) {
    const ExitStatus exit_status{WaitStatus(code)};
    EXPECT_EQ(exit_status.exit_code(), code);
    EXPECT_EQ(exit_status.ok(), code == 0);
    EXPECT_EQ(exit_status.signal_number(), 0);
    EXPECT_EQ(exit_status.ToString(), "exited with code " + std::to_string(code));
  }
}

TEST(ExitStatus, ReportsSignalsAsAShellDoes) {
  for (int signal_number = 1; signal_number < 32; ++signal_number) {
    const ExitStatus exit_status{signal_number};
    EXPECT_EQ(exit_status.exit_code(), 128 + signal_number);
    EXPECT_THAT(exit_status.ToString(), HasSubstr("killed by " + SignalName(signal_number)));
    EXPECT_FALSE(exit_status.ok());
  }
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(SignalName(63), "signal 63");
  EXPECT_EQ(ExitStatus{SIGSEGV | 0x80}.exit_code(), 139) << "with a core dump";
}

}  // namespace
}  // namespace fulldeck::diagnosis
