#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/files/open_without_links.h"
#include "base/subprocess.h"
#include "launcher/launch_info.h"
#include "launcher/run_cgroup.h"
#include "launcher/run_directory.h"
#include "temporary_folder.h"

namespace fulldeck::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

bool Exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

TEST(RunDirectory, GivesEveryRunAFolderOfItsOwn) {
  const testing::TemporaryFolder folder;
  const auto first = RunDirectory::Make(folder.string() + "/a/b", "run");
  const auto second = RunDirectory::Make(folder.string() + "/a/b", "run");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->path(), second->path());
  const auto files = first->MakeRankFiles(0, 3);
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->stdout_path, first->path() + "/attempt_0/3/stdout.log");
  EXPECT_TRUE(Exists(files->stderr_path));
}

TEST(RunDirectory, WritesNothingBehindALinkThatSomebodyPutInItsPlace) {
  const testing::TemporaryFolder folder;
  const testing::TemporaryFolder elsewhere;
  const auto is_empty = [&] { return std::filesystem::is_empty(elsewhere.string()); };
  const auto run = RunDirectory::Make(folder.string() + "/logs", "run");
  ASSERT_TRUE(run.ok());
  // In a log folder that is writable for all users, any user can rename its entries.
  std::filesystem::create_directory_symlink(elsewhere.string(), run->attempt_folder(0));
  EXPECT_FALSE(run->MakeRankFiles(0, 0).ok());
  std::filesystem::rename(run->path(), run->path() + "-renamed");
  std::filesystem::create_directory_symlink(elsewhere.string(), run->path());
  EXPECT_FALSE(run->MakeRankFiles(1, 0).ok());
  EXPECT_TRUE(is_empty());
  const int file = base::OpenWithoutLinks((run->path() + "/crash.txt").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0 && !is_empty()) GTEST_SKIP() << "this kernel has no openat2";
  EXPECT_LT(file, 0);
  EXPECT_TRUE(is_empty());
}

TEST(PrivateLogFolder, IsOnlyEverAFolderThatNobodyElseCanUse) {
  const testing::TemporaryFolder temporary;
  const std::string usual = temporary.string() + "/fulldeck_runs-" + std::to_string(geteuid());
  const auto mode = [](const std::string& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  };
  const auto first = PrivateLogFolder(temporary.string());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, usual);
  EXPECT_EQ(mode(usual), 0700U);
  // Created by an earlier version: readers are locked out now.
  ASSERT_EQ(chmod(usual.c_str(), 0755), 0);
  EXPECT_EQ(*PrivateLogFolder(temporary.string()), usual);
  EXPECT_EQ(mode(usual), 0700U);
  // Writable for others, or a link: a new folder is used instead.
  ASSERT_EQ(chmod(usual.c_str(), 0777), 0);
  const auto second = PrivateLogFolder(temporary.string());
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, usual);
  EXPECT_EQ(mode(*second), 0700U);
  ASSERT_EQ(rename(usual.c_str(), (usual + ".open").c_str()), 0);
  ASSERT_EQ(symlink("/tmp", usual.c_str()), 0);
  EXPECT_NE(*PrivateLogFolder(temporary.string()), usual);

  const auto run = RunDirectory::Make(*second, "run", false);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(mode(run->path()), 0700U);
}

TEST(LaunchInfo, KnowsTheRunIdThatIsTheTokenOfARendezvous) {
  job::RunRecord record;
  record.run_id = "our-token";
  record.host = "node1";
  record.directory = "/data/fulldeck_runs/our-token.node1";
  const auto token = [&](const base::Environment& environment) {
    return RendezvousTokenOf(FormatLaunchInfo({"fulldeck", "run"}, environment, record));
  };
  EXPECT_EQ(token({}), "our-token");
  EXPECT_EQ(token({{"FULLDECK_TOKEN", "another-one"}}), "") << "then the id is no secret";
  record.directory = "/data/fulldeck_runs/our-token";
  EXPECT_EQ(token({}), "") << "on one node nobody joins";
  record.run_id = "20261115-091500-k3fq";
  record.directory = "/data/fulldeck_runs/20261115-091500-k3fq.node1";
  EXPECT_EQ(token({}), "") << "made by fulldeck, on each node another";
  EXPECT_EQ(RendezvousTokenOf("no note"), "");
}

// If it were printed again with indentation, such a document would grow with the square of its size.
TEST(LaunchInfo, OfAnybodyElseMayBeNestedHoweverDeep) {
  const auto document = [](int depth) {
    return R"({"secrets":{"salt":"s","marks":["m"]},"run":{"run_id":"our-token","host":"b","directory":"/x/a.b"},"x":)" +
           std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  const std::string shallow = document(40);
  EXPECT_THAT(MarksOfLaunchInfo(shallow).marks, ElementsAre("m"));
  EXPECT_EQ(RendezvousTokenOf(shallow), "our-token");
  EXPECT_THAT(WithoutMarks(shallow), Not(HasSubstr("marks")));
  const std::string deep = document(2000);
  EXPECT_TRUE(MarksOfLaunchInfo(deep).marks.empty());
  EXPECT_EQ(RendezvousTokenOf(deep), "");
  EXPECT_EQ(WithoutMarks(deep), deep);
}

TEST(RunDirectory, ReportsWhichFolderCannotBeWritten) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.string() + "/file") << "";
  const auto refused = RunDirectory::Make(folder.string() + "/file/logs", "run");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("cannot write logs"));
  EXPECT_THAT(refused.error().message, HasSubstr("--log-dir"));
}

TEST(RunId, IsNeverGivenTwice) {
  std::set<std::string> ids;
  for (int i = 0; i < 200; ++i) ids.insert(NewRunId());
  EXPECT_GT(ids.size(), 195u);
}

TEST(RunCgroup, HoldsAChildFromItsBirthAndKillsAllMembers) {
  std::string why_not;
  std::string folder;
  {
    auto cgroup = RunCgroup::Make("test-" + std::to_string(getpid()), &why_not);
    if (!cgroup) GTEST_SKIP() << "no cgroup can be made here: " << why_not;
    folder = cgroup->folder();
    base::SpawnOptions options;
    options.arguments = {"/bin/sh", "-c", "sleep 1000 & sleep 1000"};
    options.clone_into_cgroup = cgroup->born_into();
    if (cgroup->procs_fd() >= 0) options.join_cgroups = {cgroup->procs_fd()};
    const auto pid = base::Spawn(options);
    ASSERT_TRUE(pid.ok());
    EXPECT_THAT(cgroup->Members(), Contains(*pid));
    EXPECT_THAT(cgroup->Members(), Not(Contains(getpid())));
    cgroup->Kill();
    int status = 0;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    for (int i = 0; i < 2000 && !cgroup->Members().empty(); ++i) usleep(1000);
    EXPECT_TRUE(cgroup->Members().empty());
  }
  EXPECT_FALSE(Exists(folder)) << "the folder goes with the object";
}

TEST(OutOfMemory, IsDistinguishedFromAKillByTheCounters) {
  MemoryPressure before;
  before.cgroup_kills = 1;
  before.machine_kills = 7;
  MemoryPressure after = before;
  EXPECT_EQ(OutOfMemoryVerdict(before, after), std::nullopt);
  after.machine_kills = 8;
  EXPECT_THAT(OutOfMemoryVerdict(before, after).value_or(""), HasSubstr("most likely out of memory"));
  after.cgroup_kills = 2;
  after.limit_bytes = 64 << 20;
  after.peak_bytes = 63 << 20;
  EXPECT_THAT(OutOfMemoryVerdict(before, after).value_or(""), HasSubstr("limit of 64 MiB (peak 63 MiB)"));
  EXPECT_EQ(OutOfMemoryVerdict({}, after), std::nullopt) << "without a reading before nothing can be said";
}

}  // namespace
}  // namespace fulldeck::launcher
