#include "doctor/kernel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/host_address.h"
#include "temporary_folder.h"

namespace fulldeck::doctor {
namespace {

const Kernel& kernel = Kernel::OfThisMachine();

TEST(Kernel, TriesAFolderAndLeavesNothingThere) {
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

TEST(Kernel, SaysAtWhichStepAFolderFails) {
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

TEST(Kernel, TalksToItselfAndSeesATakenPort) {
  const auto echo = kernel.Echo("127.0.0.1");
  EXPECT_TRUE(echo.ok()) << echo.error().message;
  EXPECT_FALSE(kernel.Echo("192.0.2.1").ok());
  const auto listener = launcher::ListenOn(launcher::HostAddress::Any(0));
  ASSERT_TRUE(listener.ok());
  const int port = launcher::LocalEnd(listener->get()).port();
  EXPECT_EQ(kernel.TryPort(port).error().system_error, EADDRINUSE);
  EXPECT_EQ(kernel.Resolve("127.0.0.1").value(), std::vector<std::string>{"127.0.0.1"});
  // No name server is asked about a name that is too long for one.
  EXPECT_FALSE(kernel.Resolve(std::string(70, 'x')).ok());
  const auto interfaces = kernel.Interfaces();
  const auto lo = std::find_if(interfaces.begin(), interfaces.end(), [](const auto& one) { return one.loopback; });
  ASSERT_NE(lo, interfaces.end());
  EXPECT_GT(lo->mtu, 0);
  EXPECT_FALSE(kernel.HostName().empty());
}

TEST(Kernel, ReadsAClockThatIsOfThisAge) {
  const WallClock clock = kernel.Clock();
  EXPECT_GT(clock.unix_seconds, 1'700'000'000);
  for (const Facility& facility : kernel.TryFacilities()) {
    const bool needed = facility.name == "memfd_create" || facility.name == "SCM_RIGHTS";
    EXPECT_TRUE(facility.error == 0 || !needed) << facility.name << " " << facility.error;
  }
}

}  // namespace
}  // namespace fulldeck::doctor
