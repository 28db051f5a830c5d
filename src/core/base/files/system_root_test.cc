#include "base/files/system_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "temporary_folder.h"

namespace fulldeck::base {
namespace {

using ::testing::ElementsAre;

class SystemRootTest : public ::testing::Test {
 protected:
  SystemRootTest() {
    temporary_.Write("proc/version", "  Linux 6.1  \nsecond line\n");
    temporary_.Write("proc/empty", "");
    temporary_.Write("usr/bin/efsmi", "#!/bin/sh\n");
    chmod((folder_ + "/usr/bin/efsmi").c_str(), 0755);
  }
  testing::TemporaryFolder temporary_;
  std::string folder_ = temporary_.string();
};

TEST_F(SystemRootTest, ReadsFilesBelowItsRoot) {
  const SystemRoot root(folder_ + "/");
  EXPECT_FALSE(root.is_machine());
  EXPECT_EQ(root.ReadLine("/proc/version"), "Linux 6.1");
  EXPECT_EQ(root.ReadFile("/proc/version", 7).value(), "  Linux");
  EXPECT_FALSE(root.ReadLine("/proc/empty"));
  EXPECT_FALSE(root.ReadLine("/proc/absent"));
  EXPECT_FALSE(root.ReadFile("/proc/absent").ok());
  EXPECT_THAT(root.List("/proc"), ElementsAre("empty", "version"));
  EXPECT_TRUE(root.List("/absent").empty());
}

TEST_F(SystemRootTest, FindsProgramsBelowItsRootAndNotInPath) {
  const SystemRoot root(folder_);
  const Environment environment = {{"PATH", "/bin"}};
  EXPECT_EQ(root.FindProgram("efsmi", environment), folder_ + "/usr/bin/efsmi");
  EXPECT_FALSE(root.FindProgram("sh", environment));
}

TEST_F(SystemRootTest, FindsProgramsOfTheMachineInPathOnly) {
  const SystemRoot machine;
  EXPECT_TRUE(machine.is_machine());
  EXPECT_EQ(machine.FindProgram("efsmi", {{"PATH", "relative:" + folder_ + "/usr/bin"}}), folder_ + "/usr/bin/efsmi");
  EXPECT_FALSE(machine.FindProgram("efsmi", {{"PATH", "/bin"}}));
}

TEST(Environment, DistinguishesSetButEmptyFromNotSet) {
  const Environment environment = {{"EMPTY", ""}};
  EXPECT_EQ(environment.Get("EMPTY"), "");
  EXPECT_FALSE(environment.Get("ABSENT"));
  setenv("FULLDECK_TEST_VARIABLE", "a=b", 1);
  EXPECT_EQ(Environment::OfThisProcess().Get("FULLDECK_TEST_VARIABLE"), "a=b");
  unsetenv("FULLDECK_TEST_VARIABLE");
}

}  // namespace
}  // namespace fulldeck::base
