#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>

#include "base/subprocess.h"
#include "launcher/failure_report.h"
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

TEST(RunDirectory, SaysWhichFolderCannotBeWritten) {
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

TEST(Tail, ShowsTheLastLinesOrTheWholeLastTraceback) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i) + "\n";
  EXPECT_THAT(Tail(text, 2), ElementsAre("line 98", "line 99"));
  text += "Traceback (most recent call last):\n";
  for (int i = 0; i < 25; ++i) text += "  File " + std::to_string(i) + "\n";
  text += "ValueError: no\n\n";
  const auto lines = Tail(text, 5);
  EXPECT_EQ(lines.front(), "Traceback (most recent call last):");
  EXPECT_EQ(lines.back(), "ValueError: no");
  EXPECT_TRUE(Tail("", 5).empty());
}

TEST(FailureReport, TellsWhoBeganWhatItSaidAndWhatIsKnownAboutIt) {
  const testing::TemporaryFolder folder;
  FailureFacts facts;
  facts.who = "rank 3 (gcu 3, pid 4711)";
  facts.how = "exited with code 1";
  facts.after = "after 2.0 s";
  facts.stopped_others = 7;
  facts.stderr_path = folder.string() + "/stderr.log";
  facts.stdout_path = folder.string() + "/stdout.log";
  facts.crash_path = folder.string() + "/crash.txt";
  facts.error_path = folder.string() + "/error.json";
  std::ofstream(facts.stderr_path)
      << "begins\nfulldeck: rank 3/8, backend fulldeck (the vendor's cannot be used: ProcessGroupECCL is not "
         "available)\n"
         "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
         "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: "
         "false, code: -98, name: EADDRINUSE, message: address already in use\n";
  std::ofstream(facts.crash_path) << "#0 0x1 libx.so+0x1 _ZN3foo3barEv+0x10\n";
  const auto report = FailureReport(facts);
  EXPECT_EQ(report.front(),
            "root cause: rank 3 (gcu 3, pid 4711) exited with code 1 after 2.0 s; it was the first, 7 others were then "
            "stopped");
  EXPECT_THAT(report, Contains(HasSubstr("known failure")));
  EXPECT_THAT(report, Not(Contains(HasSubstr("known failure A1")))) << "what was gone round is no cause";
  EXPECT_THAT(report, Contains(HasSubstr("to do: ")));
  EXPECT_THAT(report, Contains(HasSubstr("foo::bar()+0x10")));
  EXPECT_THAT(report, Contains(HasSubstr("EADDRINUSE")));
}

TEST(FailureReport, SaysSoWhenTheRankSaidNothing) {
  FailureFacts facts;
  facts.who = "rank 0 (pid 1)";
  facts.how = "killed by SIGKILL";
  facts.after = "after 0.1 s";
  const auto report = FailureReport(facts);
  EXPECT_THAT(report, ElementsAre("root cause: rank 0 (pid 1) killed by SIGKILL after 0.1 s", "  it said nothing."));
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
    options.born_into_cgroup = cgroup->born_into();
    if (cgroup->procs_fd() >= 0) options.enters_cgroups = {cgroup->procs_fd()};
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

}  // namespace
}  // namespace fulldeck::launcher
