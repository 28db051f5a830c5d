#include "agent/wrapper_programs.h"

#include <gtest/gtest.h>

namespace fulldeck::agent {
namespace {

TEST(WrapperPrograms, KnowsShellsAndTools) {
  for (const char* name : {"sh", "bash", "env", "numactl", "taskset", "nice", "timeout", "nsys", "gdb", "valgrind"}) {
    EXPECT_TRUE(IsWrapper(name)) << name;
  }
}

TEST(WrapperPrograms, TakesNoProgramThatTrainsForOne) {
  for (const char* name : {"python3", "python3.11", "train", "bash2", "ba", "", "torchrun", "/bin/sh"}) {
    EXPECT_FALSE(IsWrapper(name)) << name;
  }
}

}  // namespace
}  // namespace fulldeck::agent
