#include "diagnosis/ending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace fulldeck::diagnosis {
namespace {

using testing::HasSubstr;

int ExitStatus(int code) {
  return code << 8;
}

TEST(Ending, ReportsAll256ExitCodesAsTheyAre) {
  for (int code = 0; code < 256; ++code) {
    const Ending ending{ExitStatus(code)};
    EXPECT_EQ(ending.exit_code(), code);
    EXPECT_EQ(ending.ok(), code == 0);
    EXPECT_EQ(ending.signal_number(), 0);
    EXPECT_EQ(ending.InWords(), "exited with code " + std::to_string(code));
  }
}

TEST(Ending, ReportsSignalsAsAShellDoes) {
  for (int signal_number = 1; signal_number < 32; ++signal_number) {
    const Ending ending{signal_number};
    EXPECT_EQ(ending.exit_code(), 128 + signal_number);
    EXPECT_THAT(ending.InWords(), HasSubstr("killed by " + SignalName(signal_number)));
    EXPECT_FALSE(ending.ok());
  }
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(SignalName(63), "signal 63");
  EXPECT_EQ(Ending{SIGSEGV | 0x80}.exit_code(), 139) << "with a core dump";
}

}  // namespace
}  // namespace fulldeck::diagnosis
