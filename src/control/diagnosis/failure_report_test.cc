#include "diagnosis/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "temporary_folder.h"

namespace fulldeck::diagnosis {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(FailureReport, ReportsTheRootItsOutputAndWhatIsKnownAboutIt) {
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

TEST(SummarizeTraceback, HasTheLastLineAndTheUsersFrames) {
  const auto summary = SummarizeTraceback(
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"/home/u/train.py\", line 40, in <module>\n[rank1]:     main()\n"
      "[rank1]:   File \"/home/u/data.py\", line 7, in load\n[rank1]:     return open(path)\n"
      "[rank1]:   File \"/venv/lib/python3.11/site-packages/torch/x.py\", line 1, in y\n[rank1]:     z()\n"
      "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->error, "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'");
  EXPECT_THAT(summary->user_frames,
              ElementsAre("/home/u/train.py:40 in <module>: main()", "/home/u/data.py:7 in load: return open(path)"));
  EXPECT_FALSE(SummarizeTraceback("nothing\n").has_value());
}

TEST(SummarizeTraceback, LeavesFulldecksFramesOut) {
  const auto summary = SummarizeTraceback(
      "Traceback (most recent call last):\n"
      "  File \"/home/u/train.py\", line 4, in <module>\n    model.cuda()\n"
      "  File \"/opt/fulldeck/lib/python/fulldeck/adapters/cuda.py\", line 209, in redirected\n    return call()\n"
      "RuntimeError: out of memory\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_THAT(summary->user_frames, ElementsAre("/home/u/train.py:4 in <module>: model.cuda()"));
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
  EXPECT_THAT(summary->user_frames, ElementsAre("/home/u/train.py:5 in __getitem__: return self.read(path)"));
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
  EXPECT_THAT(syntax->user_frames, ElementsAre("/u/t.py:3"));
}

TEST(FailureReport, ReportsThatTheRankPrintedNothing) {
  FailureFacts facts;
  facts.what = "rank 0 (pid 1) killed by SIGKILL";
  facts.after = "after 0.1 s";
  const std::vector<std::string> report = FailureReport(facts).lines;
  EXPECT_THAT(report, ElementsAre("root cause: rank 0 (pid 1) killed by SIGKILL after 0.1 s", "  it said nothing."));
}

}  // namespace
}  // namespace fulldeck::diagnosis
