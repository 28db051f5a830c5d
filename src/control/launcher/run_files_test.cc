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

#include "base/open_without_links.h"
#include "base/subprocess.h"
#include "launcher/failure_report.h"
#include "launcher/launch_note.h"
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
  // Below a log folder that is open to everybody, anybody can rename what lies in it.
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
  // Of an earlier version: closed to readers.
  ASSERT_EQ(chmod(usual.c_str(), 0755), 0);
  EXPECT_EQ(*PrivateLogFolder(temporary.string()), usual);
  EXPECT_EQ(mode(usual), 0700U);
  // Everybody can write there, or it leads elsewhere: a new one instead.
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

TEST(LaunchNote, KnowsTheRunIdThatIsTheTokenOfARendezvous) {
  job::RunRecord record;
  record.run_id = "our-token";
  record.host = "node1";
  record.directory = "/data/fulldeck_runs/our-token.node1";
  const auto token = [&](const base::Environment& environment) {
    return RendezvousTokenOf(FormatLaunchNote({"fulldeck", "run"}, environment, record));
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

// Printed again with its indents, such a note would grow with the square of its size.
TEST(LaunchNote, OfAnybodyElseMayBeNestedHoweverDeep) {
  const auto note = [](int depth) {
    return R"({"secrets":{"salt":"s","marks":["m"]},"run":{"run_id":"our-token","host":"b","directory":"/x/a.b"},"x":)" +
           std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  const std::string shallow = note(40);
  EXPECT_THAT(MarksOfLaunchNote(shallow).marks, ElementsAre("m"));
  EXPECT_EQ(RendezvousTokenOf(shallow), "our-token");
  EXPECT_THAT(WithoutMarks(shallow), Not(HasSubstr("marks")));
  const std::string deep = note(2000);
  EXPECT_TRUE(MarksOfLaunchNote(deep).marks.empty());
  EXPECT_EQ(RendezvousTokenOf(deep), "");
  EXPECT_EQ(WithoutMarks(deep), deep);
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
  facts.what = "rank 3 (gcu 3, pid 4711) exited with code 1";
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
  const FailureLines whole = FailureReport(facts);
  const std::vector<std::string>& report = whole.lines;
  EXPECT_THAT(whole.known, Contains("C5"));
  EXPECT_EQ(report.front(),
            "root cause: rank 3 (gcu 3, pid 4711) exited with code 1 after 2.0 s; it was the first, 7 others were then "
            "stopped");
  EXPECT_THAT(report, Contains(HasSubstr("known failure")));
  EXPECT_THAT(report, Not(Contains(HasSubstr("known failure A1")))) << "what was gone round is no cause";
  EXPECT_THAT(report, Contains(HasSubstr("to do: ")));
  EXPECT_THAT(report, Contains(HasSubstr("foo::bar()+0x10")));
  EXPECT_THAT(report, Contains(HasSubstr("EADDRINUSE")));
}

TEST(SummarizeTraceback, HasTheLastLineAndTheUsersOwnFrames) {
  const auto summary = SummarizeTraceback(
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"/home/u/train.py\", line 40, in <module>\n[rank1]:     main()\n"
      "[rank1]:   File \"/home/u/data.py\", line 7, in load\n[rank1]:     return open(path)\n"
      "[rank1]:   File \"/venv/lib/python3.11/site-packages/torch/x.py\", line 1, in y\n[rank1]:     z()\n"
      "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->error, "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'");
  EXPECT_THAT(summary->own_frames,
              ElementsAre("/home/u/train.py:40 in <module>: main()", "/home/u/data.py:7 in load: return open(path)"));
  EXPECT_FALSE(SummarizeTraceback("nothing\n").has_value());
}

TEST(SummarizeTraceback, LeavesOurOwnFramesOut) {
  const auto summary = SummarizeTraceback(
      "Traceback (most recent call last):\n"
      "  File \"/home/u/train.py\", line 4, in <module>\n    model.cuda()\n"
      "  File \"/opt/fulldeck/lib/python/fulldeck/adapters/cuda.py\", line 209, in redirected\n    return call()\n"
      "RuntimeError: out of memory\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_THAT(summary->own_frames, ElementsAre("/home/u/train.py:4 in <module>: model.cuda()"));
}

TEST(SummarizeTraceback, OfADataLoadersWorkerIsTheWorkersOwn) {
  const auto summary = SummarizeTraceback(
      "Traceback (most recent call last):\n"
      "  File \"/home/u/train.py\", line 9, in <module>\n    for batch in loader:\n"
      "  File \"/v/lib/python3.11/site-packages/torch/_utils.py\", line 733, in reraise\n    raise exception\n"
      "FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 0.\n"
      "Original Traceback (most recent call last):\n"
      "  File \"/v/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py\", line 1, in _worker_loop\n    x()\n"
      "  File \"/home/u/train.py\", line 5, in __getitem__\n    return self.read(path)\n"
      "FileNotFoundError: [Errno 2] No such file or directory: '/data/0.png'\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->error, "FileNotFoundError: [Errno 2] No such file or directory: '/data/0.png'");
  EXPECT_THAT(summary->own_frames, ElementsAre("/home/u/train.py:5 in __getitem__: return self.read(path)"));
}

TEST(SummarizeTraceback, HasWhatStandsOnTheNextLineAndSyntaxErrors) {
  EXPECT_EQ(SummarizeTraceback("Traceback (most recent call last):\n  File \"/u/t.py\", line 1, in <module>\n"
                               "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): \"a\".\n")
                ->error,
            "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): \"a\".");
  const auto syntax =
      SummarizeTraceback("  File \"/u/t.py\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed\n");
  ASSERT_TRUE(syntax.has_value());
  EXPECT_EQ(syntax->error, "SyntaxError: '(' was never closed");
  EXPECT_THAT(syntax->own_frames, ElementsAre("/u/t.py:3"));
}

TEST(FailureReport, SaysSoWhenTheRankSaidNothing) {
  FailureFacts facts;
  facts.what = "rank 0 (pid 1) killed by SIGKILL";
  facts.after = "after 0.1 s";
  const std::vector<std::string> report = FailureReport(facts).lines;
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
