#include "bench/host_memory.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace fulldeck::bench {
namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  std::optional<std::uint64_t> Available() const { return AvailableMemory(base::SystemRoot(folder_.string())); }
  fulldeck::testing::TemporaryFolder folder_;
};

TEST_F(AvailableMemoryTest, IsNotKnownWhereTheKernelReportsNothing) {
  EXPECT_EQ(Available(), std::nullopt);
  folder_.Write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: lots\n");
  EXPECT_EQ(Available(), std::nullopt);
}

TEST_F(AvailableMemoryTest, IsWhatIsFreeOnTheMachine) {
  folder_.Write("proc/meminfo", "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n");
  EXPECT_EQ(Available(), 2 * kMebibyte);
}

TEST_F(AvailableMemoryTest, IsBoundedByTheCgroupOfEitherVersion) {
  folder_.Write("proc/meminfo", "MemAvailable: 2048000 kB\n");
  folder_.Write("proc/self/cgroup", "0::/user/one\n");
  folder_.Write("sys/fs/cgroup/user/one/memory.max", "max\n");
  folder_.Write("sys/fs/cgroup/user/one/memory.current", "1048576\n");
  EXPECT_EQ(Available(), 2000 * kMebibyte);
  folder_.Write("sys/fs/cgroup/user/one/memory.max", "5242880\n");
  EXPECT_EQ(Available(), 4 * kMebibyte);
  folder_.Write("proc/self/cgroup", "5:memory:/box\n3:cpu:/box\n");
  folder_.Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1048576\n");
  folder_.Write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "2097152\n");
  EXPECT_EQ(Available(), 0u);
}

TEST(MemorySpeed, IsMeasuredOnTheCpusThatMayBeUsed) {
  const auto cpus = UsableCpus();
  ASSERT_FALSE(cpus.empty());
  const double speed = MeasureMemorySpeed({cpus.front()});
  EXPECT_GT(speed, 1e7);
  EXPECT_LT(speed, 1e13);
}

}  // namespace
}  // namespace fulldeck::bench
