#include "collectives/memory/available_memory.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace fulldeck::collectives {
namespace {

using ::fulldeck::testing::TemporaryFolder;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(AvailableMemory, IsTheMachinesWhereThereAreNoCgroups) {
  const TemporaryFolder machine;
  machine.Write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\nSwapFree: 1024 kB\n");
  const auto available = ReadAvailableMemory(base::SystemRoot(machine.string()));
  ASSERT_TRUE(available);
  EXPECT_EQ(available->bytes, 3 * kMiB);
  EXPECT_EQ(available->of, "this machine");
}

TEST(AvailableMemory, IsBoundByTheTightestCgroupOnThePathToTheRoot) {
  const TemporaryFolder machine;
  machine.Write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  machine.Write("proc/self/cgroup", "0::/jobs/mine\n");
  machine.Write("sys/fs/cgroup/jobs/memory.max", "104857600\n");
  machine.Write("sys/fs/cgroup/jobs/memory.current", "94371840\n");
  machine.Write("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 20971520\n");
  machine.Write("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  machine.Write("sys/fs/cgroup/jobs/mine/memory.current", "94371840\n");
  const auto available = ReadAvailableMemory(base::SystemRoot(machine.string()));
  ASSERT_TRUE(available);
  EXPECT_EQ(available->bytes, 30 * kMiB);
  EXPECT_EQ(available->of, "the cgroup /jobs");
}

TEST(AvailableMemory, IsThatOfTheContainerWhereItsPathCannotBeSeen) {
  const TemporaryFolder machine;
  machine.Write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  machine.Write("proc/self/cgroup", "7:cpu,cpuacct:/\n4:memory:/docker/0123\n");
  machine.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
  machine.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "70000000\n");
  const auto available = ReadAvailableMemory(base::SystemRoot(machine.string()));
  ASSERT_TRUE(available);
  EXPECT_EQ(available->bytes, 0U);
  EXPECT_EQ(available->of, "the cgroup /");
}

TEST(AvailableMemory, IsNotKnownWhereNothingSaysSo) {
  const TemporaryFolder machine;
  EXPECT_FALSE(ReadAvailableMemory(base::SystemRoot(machine.string())));
  machine.Write("proc/meminfo", "MemAvailable: plenty\nMemAvailableX: 3 kB\n");
  machine.Write("proc/self/cgroup", "::\n0:\nrubbish\n0::relative\n");
  machine.Write("sys/fs/cgroup/memory.max", "-1\n");
  EXPECT_FALSE(ReadAvailableMemory(base::SystemRoot(machine.string())));
}

TEST(AvailableMemory, IsFoundOnThisMachine) {
  const auto available = ReadAvailableMemory();
  ASSERT_TRUE(available);
  EXPECT_GT(available->bytes, kMiB);
}

}  // namespace
}  // namespace fulldeck::collectives
