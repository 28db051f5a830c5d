#include "base/usable_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/files/system_root.h"
#include "temporary_folder.h"

namespace fulldeck::base {
namespace {

class UsableCpusTest : public ::testing::Test {
 protected:
  int Usable(int allowed) const { return UsableCpus(base::SystemRoot(folder_.string()), allowed); }
  testing::TemporaryFolder folder_;
};

class OfCgroup2 : public UsableCpusTest {
 protected:
  OfCgroup2() {
    folder_.Write("proc/self/cgroup", "0::/jobs/one\n");
    folder_.Write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n");
  }
};

class OfCgroup1 : public UsableCpusTest {
 protected:
  OfCgroup1() {
    folder_.Write("proc/self/cgroup", "4:memory:/elsewhere\n3:cpu,cpuacct:/docker/abc/inner\n0::/\n");
    folder_.Write("proc/self/mountinfo",
                  "30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                  "31 23 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }
};

TEST_F(UsableCpusTest, AreThoseOfTheAffinityWhereThereIsNoCgroup) {
  EXPECT_EQ(Usable(6), 6);
  EXPECT_EQ(Usable(0), 1);
}

TEST_F(OfCgroup2, AreBoundByTheSmallestQuotaUpTheTree) {
  EXPECT_EQ(Usable(16), 16);
  folder_.Write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  EXPECT_EQ(Usable(16), 16);
  folder_.Write("sys/fs/cgroup/jobs/cpu.max", "800000 100000\n");
  EXPECT_EQ(Usable(16), 8);
  EXPECT_EQ(Usable(4), 4);
  folder_.Write("sys/fs/cgroup/cpu.max", "150000 50000\n");
  EXPECT_EQ(Usable(16), 3);
}

TEST_F(OfCgroup2, CountOnlyWholeCpusAndAtLeastOne) {
  folder_.Write("sys/fs/cgroup/jobs/one/cpu.max", "250000 100000\n");
  EXPECT_EQ(Usable(16), 2);
  folder_.Write("sys/fs/cgroup/jobs/one/cpu.max", "50000 100000\n");
  EXPECT_EQ(Usable(16), 1);
}

TEST_F(OfCgroup2, TakeNonsenseForNoQuota) {
  for (const char* text : {"", "\n", "100000", "-5 100000", "100000 0", "a b", "100000 100000 1", "1e9 7"}) {
    folder_.Write("sys/fs/cgroup/jobs/one/cpu.max", text);
    EXPECT_EQ(Usable(16), 16) << text;
  }
}

TEST_F(OfCgroup2, DoNotFollowAPathOutOfTheMount) {
  folder_.Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  folder_.Write("sys/fs/other/cpu.max", "100000 100000\n");
  folder_.Write("proc/self/cgroup", "0::/../other\n");
  EXPECT_EQ(Usable(16), 2);
  folder_.Write("proc/self/cgroup", "nonsense\n0:\n");
  EXPECT_EQ(Usable(16), 16);
}

TEST_F(OfCgroup1, AreBoundByTheQuotaOfTheCpuController) {
  folder_.Write("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "-1\n");
  folder_.Write("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Usable(16), 16);
  folder_.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  folder_.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Usable(16), 4);
  folder_.Write("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(Usable(16), 2);
}

TEST(UsableCpus, FollowTheAffinityOfTheThread) {
  EXPECT_GE(UsableCpus(), 1);
  int usable = 0;
  std::thread bound([&usable] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(sched_getcpu(), &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) == 0) usable = UsableCpus();
  });
  bound.join();
  EXPECT_EQ(usable, 1);
}

}  // namespace
}  // namespace fulldeck::base
