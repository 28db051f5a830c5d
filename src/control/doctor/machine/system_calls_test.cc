#include "doctor/machine/system_calls.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "base/files/system_root.h"

#include "net/host_address.h"
#include "temporary_folder.h"

namespace fulldeck::doctor {
namespace {

const SystemCalls& kernel = SystemCalls::OfThisMachine();

TEST(SystemCalls, TriesAFolderAndLeavesNothingThere) {
  const testing::TemporaryFolder folder;
  const auto written = kernel.WriteAndReadBack(folder.string(), 100'000);
  EXPECT_TRUE(written.ok()) << written.error().message;
  const auto times = kernel.SyncTimes(folder.string(), 3, std::chrono::seconds(20));
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_GE(times->size(), 1U);
  const auto space = kernel.Space(folder.string());
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->bytes, space->bytes_free);
  const auto reserved = kernel.Reserve(folder.string(), 1 << 20);
  EXPECT_TRUE(reserved.ok() || reserved.error().system_error == EOPNOTSUPP) << reserved.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SystemCalls, ReportsAtWhichStepAFolderFails) {
  const testing::TemporaryFolder folder;
  folder.Write("file", "x");
  for (const char* bad : {"/file", "/absent"}) {
    const auto written = kernel.WriteAndReadBack(folder.string() + bad, 10);
    ASSERT_FALSE(written.ok());
    EXPECT_NE(written.error().message.find("no file can be made in"), std::string::npos) << written.error().message;
    EXPECT_NE(written.error().system_error, 0);
    EXPECT_FALSE(kernel.SyncTimes(folder.string() + bad, 1, std::chrono::seconds(1)).ok());
    EXPECT_FALSE(kernel.Reserve(folder.string() + bad, 1).ok());
  }
  EXPECT_FALSE(kernel.Space(folder.string() + "/absent").ok());
  EXPECT_EQ(kernel.MayUse(folder.string() + "/absent").error().system_error, ENOENT);
}

TEST(SystemCalls, TalksToItselfAndSeesATakenPort) {
  const auto echo = kernel.Echo("127.0.0.1");
  EXPECT_TRUE(echo.ok()) << echo.error().message;
  EXPECT_FALSE(kernel.Echo("192.0.2.1").ok());
  const auto listener = net::ListenOn(net::HostAddress::Any(0));
  ASSERT_TRUE(listener.ok());
  const int port = net::LocalEnd(listener->get()).port();
  EXPECT_EQ(kernel.TryPort(port).error().system_error, EADDRINUSE);
  EXPECT_EQ(kernel.Resolve("127.0.0.1").value(), std::vector<std::string>{"127.0.0.1"});
  // A name that is too long for DNS is not sent to a name server.
  EXPECT_FALSE(kernel.Resolve(std::string(70, 'x')).ok());
  const auto interfaces = kernel.Interfaces();
  const auto lo = std::find_if(interfaces.begin(), interfaces.end(), [](const auto& one) { return one.loopback; });
  ASSERT_NE(lo, interfaces.end());
  EXPECT_GT(lo->mtu, 0);
  EXPECT_FALSE(kernel.HostName().empty());
}

// This process as the init of its orphans: reaping them, and not reaping them.
TEST(SystemCalls, SeesWhetherAnOrphanIsReaped) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  // On a loaded machine an orphan may not have exited within 200 ms: an error, never "reaped". Then retry with a longer
  // limit.
  auto left = kernel.OrphanAProcess(std::chrono::milliseconds(200));
  for (int seconds = 1; !left && seconds <= 32; seconds *= 2)
    left = kernel.OrphanAProcess(std::chrono::seconds(seconds));
  std::atomic<bool> stop{false};
  std::thread reaper([&] {
    while (!stop) {
      if (waitpid(-1, nullptr, WNOHANG) <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto reaped = kernel.OrphanAProcess(std::chrono::seconds(60));
  stop = true;
  reaper.join();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  ASSERT_TRUE(left.ok()) << left.error().message;
  EXPECT_FALSE(left->reaped);
  EXPECT_EQ(left->adopter, getpid());
  ASSERT_TRUE(reaped.ok()) << reaped.error().message;
  EXPECT_TRUE(reaped->reaped);
}

TEST(SystemCalls, ReadsTheMemoryOfAnotherProcess) {
  // A seccomp filter or Yama may forbid it; then there is an errno.
  const int error = ReadAnotherProcess();
  EXPECT_TRUE(error == 0 || error == EPERM || error == ENOSYS || error == EACCES) << error;
}

TEST(SystemCalls, HugePagesAreWhatTheKernelCountsAndNotWhatAFileAllows) {
  const HugePages given = kernel.TryHugePages();
  const auto enabled = base::SystemRoot().ReadLine("/sys/kernel/mm/transparent_hugepage/enabled");
  const auto shared = base::SystemRoot().ReadLine("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (enabled && enabled->find("[never]") != std::string::npos) {
    EXPECT_NE(given.anonymous, std::optional(true));
  }
  if (shared && shared->find("[never]") != std::string::npos) {
    EXPECT_NE(given.shared, std::optional(true));
  }
  if (enabled) {
    EXPECT_TRUE(given.anonymous.has_value());
  }
}

TEST(SystemCalls, ReadsAClockThatIsOfThisAge) {
  const WallClock clock = kernel.Clock();
  EXPECT_GT(clock.unix_seconds, 1'700'000'000);
  for (const Facility& facility : kernel.TryFacilities()) {
    const bool needed = facility.name == "memfd_create" || facility.name == "SCM_RIGHTS";
    EXPECT_TRUE(facility.error == 0 || !needed) << facility.name << " " << facility.error;
  }
}

}  // namespace
}  // namespace fulldeck::doctor
