#include "logs/log_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "logs/console.h"
#include "logs/line_splitter.h"
#include "logs/log_testing.h"
#include "temporary_folder.h"

namespace fulldeck::logs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing_support::AppendTo;
using testing_support::ContentOf;
using testing_support::LinesOf;
using testing_support::PseudoTerminal;
using testing_support::ReadAvailable;
using testing_support::RunUntil;
using testing_support::RunWhatIsDue;
using testing_support::ScreenAfter;

// Two pipes replace the launcher's stdout and stderr. The clock advances only when a test moves it.
class LogFollowerTest : public ::testing::Test {
 protected:
  LogFollowerTest() : loop_(clock_) {
    for (base::Pipe* pipe : {&out_, &err_}) {
      auto made = base::MakePipe();
      EXPECT_TRUE(made.ok());
      *pipe = std::move(*made);
    }
  }

  LogFollowerOptions Options() {
    LogFollowerOptions options;
    options.merged_path = Path("train.log");
    options.stdout_fd = out_.write_end.get();
    options.stderr_fd = err_.write_end.get();
    options.warn = [this](const std::string& sentence) { warnings_.push_back(sentence); };
    return options;
  }

  std::string Path(const std::string& name) const { return folder_.string() + "/" + name; }

  // Follows an empty log of a rank.
  FollowedStream Stream(const std::string& name, const std::string& prefix = "", int console_fd = 1) {
    AppendTo(Path(name), "");
    FollowedStream stream;
    stream.path = Path(name);
    stream.prefix = prefix;
    stream.console_fd = console_fd;
    return stream;
  }

  void RunOn() {
    clock_.Advance(10ms);  // notices are read again after this time
    RunWhatIsDue(loop_);
  }
  void Pass(base::Duration time) {
    for (base::Duration passed = 0ms; passed < time; passed += 10ms) RunOn();
  }
  std::string Shown() { return ReadAvailable(out_.read_end.get()); }
  std::string ShownOnStderr() { return ReadAvailable(err_.read_end.get()); }
  std::string Merged() const { return ContentOf(Path("train.log")); }

  testing_support::WithoutSigpipe without_sigpipe_;
  fulldeck::testing::TemporaryFolder folder_;
  base::Pipe out_;
  base::Pipe err_;
  base::ManualClock clock_;
  base::EventLoop loop_;
  std::vector<std::string> warnings_;
};

TEST_F(LogFollowerTest, PassesWholeLinesOnToConsoleAndMergedLog) {
  LogFollower follower(loop_, Options());
  AppendTo(Path("0"), "before it was followed\n");
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ")).ok());
  ASSERT_TRUE(follower.Follow(Stream("1", "[1] ", 2)).ok());
  RunOn();
  EXPECT_EQ(Shown(), "[0] before it was followed\n");
  AppendTo(Path("0"), "one\ntw");
  AppendTo(Path("1"), "error\n");
  RunOn();
  EXPECT_EQ(Shown(), "[0] one\n");
  EXPECT_EQ(ShownOnStderr(), "[1] error\n");
  AppendTo(Path("0"), "o\n");
  RunOn();
  EXPECT_EQ(Shown(), "[0] two\n");
  EXPECT_EQ(Merged(), "[0] before it was followed\n[0] one\n[1] error\n[0] two\n");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(LogFollowerTest, LeavesOutWhatAStreamDoesNotWant) {
  LogFollower follower(loop_, Options());
  FollowedStream quiet = Stream("quiet", "[0] ", -1);
  FollowedStream unmerged = Stream("unmerged", "[1] ", 1);
  unmerged.merged = false;
  FollowedStream nothing = Stream("nothing", "[2] ", -1);
  nothing.merged = false;
  for (const FollowedStream& stream : {quiet, unmerged, nothing}) {
    ASSERT_TRUE(follower.Follow(stream).ok());
    AppendTo(stream.path, "text\n");
  }
  RunOn();
  follower.Drain(1s);
  EXPECT_EQ(Shown(), "[1] text\n");
  EXPECT_EQ(Merged(), "[0] text\n");
}

TEST_F(LogFollowerTest, RefusesWhatItCannotFollow) {
  LogFollower follower(loop_, Options());
  FollowedStream missing;
  missing.path = Path("missing");
  const auto result = follower.Follow(missing);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("missing: No such file or directory"));
  FollowedStream folder;
  folder.path = folder_.string();
  EXPECT_THAT(follower.Follow(folder).error().message, HasSubstr("not a regular file"));
}

TEST_F(LogFollowerTest, FollowsFilesWithoutInotify) {
  LogFollowerOptions options = Options();
  options.inotify = false;
  LogFollower follower(loop_, options);
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  RunOn();
  AppendTo(Path("0"), "one\n");
  Pass(200ms);
  EXPECT_EQ(Shown(), "one\n");
  AppendTo(Path("0"), "two\n");
  Pass(200ms);
  EXPECT_EQ(Shown(), "two\n");
  follower.Drain(1s);
  EXPECT_EQ(Merged(), "one\ntwo\n");
}

// Runs in a child with its own user namespace, so that the limit affects no other process. The exit code is the
// result.
int FollowThreeFilesWithOneWatch(const fulldeck::testing::TemporaryFolder& folder) {
  constexpr int kCannotTell = 77;
  if (unshare(CLONE_NEWUSER) != 0) return kCannotTell;
  const base::UniqueFd limit(open("/proc/sys/user/max_inotify_watches", O_WRONLY | O_CLOEXEC));
  if (!limit.valid() || write(limit.get(), "1", 1) != 1) return kCannotTell;
  base::EventLoop loop;
  std::vector<std::string> warnings;
  LogFollowerOptions options;
  options.merged_path = folder.string() + "/train.log";
  options.stdout_fd = options.stderr_fd = -1;
  options.warn = [&](const std::string& sentence) { warnings.push_back(sentence); };
  LogFollower follower(loop, options);
  for (const char* name : {"/0", "/1", "/2"}) {
    FollowedStream stream;
    stream.path = folder.string() + name;
    AppendTo(stream.path, "");
    if (!follower.Follow(stream).ok()) return 1;
  }
  while (loop.RunOnce(0ms)) continue;
  for (const char* name : {"/0", "/1", "/2"}) AppendTo(folder.string() + name, "x\n");
  if (!RunUntil(loop, [&] { return ContentOf(options.merged_path) == "x\nx\nx\n"; })) return 2;
  if (warnings.size() != 1) return 3;
  return warnings[0].find("fs.inotify.max_user_watches") != std::string::npos ? 0 : 4;
}

TEST_F(LogFollowerTest, ReportsOnceThatNoWatchIsLeftAndPollsThoseFiles) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) _exit(FollowThreeFilesWithOneWatch(folder_));
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no user namespace can be made here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LogFollowerTest, PassesOneFileOnTwiceWhenItIsFollowedTwice) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0", "a ")).ok());
  ASSERT_TRUE(follower.Follow(Stream("0", "b ")).ok());
  RunOn();
  AppendTo(Path("0"), "x\n");
  RunOn();
  EXPECT_EQ(Merged(), "a x\nb x\n");
}

TEST_F(LogFollowerTest, CutsLongLinesIntoMarkedChunksAndLosesNothing) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ", -1)).ok());
  std::string line;
  while (line.size() < 3 * LineSplitter::kLongestLine) line += std::to_string(line.size()) + " ";
  AppendTo(Path("0"), line + "\nnext\n");
  follower.Drain(1s);
  const std::vector<std::string> lines = LinesOf(Merged());
  ASSERT_THAT(lines, SizeIs(5));
  std::string joined;
  for (std::size_t i = 0; i < 4; ++i) {
    std::string chunk = lines[i];
    ASSERT_EQ(chunk.substr(0, 4), "[0] ");
    if (i < 3) {
      ASSERT_TRUE(chunk.ends_with(kLineGoesOn));
      chunk.resize(chunk.size() - kLineGoesOn.size());
    }
    joined += chunk.substr(4);
  }
  EXPECT_TRUE(joined == line);
  EXPECT_EQ(lines[4], "[0] next");
}

TEST_F(LogFollowerTest, KeepsTheLastStateOfAProgressBarAndShowsOneASecond) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ")).ok());
  RunOn();
  // A progress bar that is drawn every 100 ms for 3 s.
  for (int i = 0; i < 30; ++i) {
    AppendTo(Path("0"), "\rstate " + std::to_string(i));
    Pass(100ms);
  }
  const std::vector<std::string> during = LinesOf(Shown());
  EXPECT_GE(during.size(), 2U);
  EXPECT_LE(during.size(), 4U);
  for (const std::string& line : during) EXPECT_THAT(line, ::testing::StartsWith("[0] state "));
  EXPECT_EQ(std::set<std::string>(during.begin(), during.end()).size(), during.size()) << "no state twice";
  AppendTo(Path("0"), "\rall done\nnext\r\n");
  RunOn();
  EXPECT_EQ(Shown(), "[0] all done\n[0] next\n");
  Pass(3s);
  EXPECT_EQ(Shown(), "") << "what was overwritten is not shown after the line";
  EXPECT_EQ(Merged(), "[0] all done\n[0] next\n");
}

TEST_F(LogFollowerTest, ShowsTheLatestStateOfABarThatStopsMoving) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  AppendTo(Path("0"), "10%\r20%\r30%\r");
  RunOn();
  Pass(3s);
  EXPECT_EQ(Shown(), "10%\n30%\n");
  AppendTo(Path("0"), "\n");
  RunOn();
  EXPECT_EQ(Shown(), "") << "all of that line was shown before";
  EXPECT_EQ(Merged(), "30%\n");
}

TEST_F(LogFollowerTest, ShowsAPromptAfterHalfASecondAndNotAgain) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ")).ok());
  AppendTo(Path("0"), "Name? ");
  RunOn();
  Pass(300ms);
  EXPECT_EQ(Shown(), "");
  Pass(500ms);
  EXPECT_EQ(Shown(), "[0] Name? \n");
  Pass(5s);
  EXPECT_EQ(Shown(), "");
  AppendTo(Path("0"), "thanks");
  Pass(1s);
  EXPECT_EQ(Shown(), "[0] thanks\n");
  AppendTo(Path("0"), ", bye\nnext\n");
  RunOn();
  EXPECT_EQ(Shown(), "[0] , bye\n[0] next\n");
  EXPECT_EQ(Merged(), "[0] Name? thanks, bye\n[0] next\n");
}

TEST_F(LogFollowerTest, DoesNotShowHalfACharacterOfAPrompt) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  AppendTo(Path("0"), "训\xe7\xbb");
  Pass(2s);
  EXPECT_EQ(Shown(), "训\n");
  AppendTo(Path("0"), "\x83\n");
  RunOn();
  EXPECT_EQ(Shown(), "练\n");
}

TEST_F(LogFollowerTest, CopiesLinesThatHoldAnyOfTheTexts) {
  LogFollower follower(loop_, Options());
  for (const std::string rank : {"0", "1"}) {
    FollowedStream stream = Stream(rank, "[" + rank + "] ", -1);
    stream.filters = {"loss", "lr="};
    stream.filtered_path = Path("filtered.log");
    ASSERT_TRUE(follower.Follow(stream).ok());
    AppendTo(Path(rank), "loss 3\nother\nnew lr=1\nlos s\n");
  }
  RunOn();
  EXPECT_EQ(ContentOf(Path("filtered.log")), "[0] loss 3\n[0] new lr=1\n[1] loss 3\n[1] new lr=1\n");
}

TEST_F(LogFollowerTest, WritesTheLaunchersLinesToStderrAndTheMergedLog) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ", 2)).ok());
  AppendTo(Path("0"), "first\n");
  RunOn();
  follower.LogLine("fulldeck: rank 0 ended");
  follower.LogLine("fulldeck: a report\n  of two lines\n");
  EXPECT_EQ(ShownOnStderr(), "[0] first\nfulldeck: rank 0 ended\nfulldeck: a report\n  of two lines\n");
  EXPECT_EQ(Merged(), "[0] first\nfulldeck: rank 0 ended\nfulldeck: a report\n  of two lines\n");
}

TEST_F(LogFollowerTest, DrainsEverythingAndFollowsTheFilesOfTheNextAttempt) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ")).ok());
  AppendTo(Path("0"), "text\nunfinished");
  follower.Drain(1s);
  EXPECT_EQ(Shown(), "[0] text\n[0] unfinished\n");
  AppendTo(Path("0"), "nobody follows this\n");
  std::filesystem::create_directory(Path("attempt_1"));
  ASSERT_TRUE(follower.Follow(Stream("attempt_1/0", "[0] ")).ok());
  AppendTo(Path("attempt_1/0"), "again\n");
  RunOn();
  follower.Drain(1s);
  EXPECT_EQ(Shown(), "[0] again\n");
  EXPECT_EQ(Merged(), "[0] text\n[0] unfinished\n[0] again\n");
}

TEST_F(LogFollowerTest, WaitsInDrainForAConsoleThatKeepsReading) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "line " + std::to_string(i) + "\n";
  AppendTo(Path("0"), text);
  base::SpawnOptions reader;
  reader.arguments = {"/bin/sh", "-c", "cat > '" + Path("shown") + "'"};
  reader.descriptors = {{0, out_.read_end.get()}};
  reader.parent_death_signal = SIGKILL;
  const auto pid = base::Spawn(reader);
  ASSERT_TRUE(pid.ok());
  out_.read_end.Reset();
  follower.Drain(60s);
  EXPECT_EQ(follower.dropped_console_lines(), 0U);
  EXPECT_TRUE(Merged() == text);
  EXPECT_TRUE(RunUntil(loop_, [&] { return std::filesystem::file_size(Path("shown")) == text.size(); }));
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
  EXPECT_TRUE(ContentOf(Path("shown")) == text);
}

TEST_F(LogFollowerTest, WaitsInDrainNoLongerThanTheTimeoutForAConsoleThatNobodyReads) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "line " + std::to_string(i) + "\n";
  AppendTo(Path("0"), text);
  const base::TimePoint start = base::SteadyClock::Instance().Now();
  follower.Drain(200ms);
  EXPECT_LT(base::SteadyClock::Instance().Now() - start, 20s);
  EXPECT_TRUE(Merged() == text) << "the merged log has them all";
  const std::size_t shown = LinesOf(Shown()).size();
  EXPECT_GT(follower.dropped_console_lines(), 0U);
  EXPECT_NEAR(static_cast<double>(shown + follower.dropped_console_lines()), 200'000, 1) << "a line may be half out";
}

TEST_F(LogFollowerTest, DrainsAFileThatStillGrowsOnlyToWhereItWas) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "line " + std::to_string(i) + "\n";
  const testing_support::FileSizeLimit never_for_ever(20 * text.size());
  // Follows the merged log itself: every line that is read makes it longer.
  AppendTo(Path("train.log"), text);
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("train.log", "", -1)).ok());
  follower.Drain(1s);
  EXPECT_TRUE(Merged() == text + text) << Merged().size();
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(LogFollowerTest, GoesOnWhenTheDiskOfTheMergedLogIsFull) {
  LogFollowerOptions options = Options();
  options.merged_path = "/dev/full";
  LogFollower* target = nullptr;
  options.warn = [&](const std::string& sentence) {
    warnings_.push_back(sentence);
    target->LogLine("fulldeck: " + sentence);
  };
  LogFollower follower(loop_, options);
  target = &follower;
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  AppendTo(Path("0"), "one\n");
  RunOn();
  EXPECT_EQ(Shown(), "one\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/dev/full: No space left on device")));
  EXPECT_THAT(ShownOnStderr(), HasSubstr("/dev/full"));
  AppendTo(Path("0"), "two\n");
  Pass(5s);
  EXPECT_EQ(Shown(), "two\n");
  EXPECT_THAT(warnings_, SizeIs(1)) << "once is enough";
  follower.Drain(1s);
  ASSERT_THAT(warnings_, SizeIs(2));
  EXPECT_THAT(warnings_[1], HasSubstr("3 lines are missing in /dev/full"));
}

TEST_F(LogFollowerTest, TakesWhatStandsInAFileThatWasCutAsNew) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  AppendTo(Path("0"), "a long line before\nhalf");
  RunOn();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(truncate(Path("0").c_str(), 0), 0);
    AppendTo(Path("0"), "after\n");
    RunOn();
    AppendTo(Path("0"), "more and more\n");
    RunOn();
  }
  ASSERT_EQ(truncate(Path("0").c_str(), 0), 0);
  AppendTo(Path("0"), "end\n");
  follower.Drain(1s);
  EXPECT_EQ(Merged(), "a long line before\nhalf\nafter\nmore and more\nafter\nmore and more\nend\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("became shorter")));
}

TEST_F(LogFollowerTest, ReadsAFileOnThatWasDeleted) {
  LogFollower follower(loop_, Options());
  const base::UniqueFd rank(open(Path("0").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  RunOn();
  ASSERT_EQ(unlink(Path("0").c_str()), 0);
  RunOn();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("was deleted")));
  ASSERT_EQ(write(rank.get(), "still here\n", 11), 11);
  RunOn();
  EXPECT_EQ(Merged(), "still here\n");
}

TEST_F(LogFollowerTest, ReportsInTheMergedLogThatTheConsoleIsGoneAndContinues) {
  LogFollower follower(loop_, Options());
  ASSERT_TRUE(follower.Follow(Stream("0")).ok());
  RunOn();
  out_.read_end.Reset();
  AppendTo(Path("0"), "one\n");
  RunOn();
  AppendTo(Path("0"), "two\n");
  RunOn();
  follower.Drain(10s);
  EXPECT_THAT(LinesOf(Merged()),
              ElementsAre("one", HasSubstr("fulldeck: standard output cannot be written any more"), "two"));
}

TEST_F(LogFollowerTest, KeepsTheOrderWhereStdoutAndStderrAreOnePipe) {
  LogFollowerOptions options = Options();
  const base::UniqueFd copy(dup(out_.write_end.get()));
  options.stderr_fd = copy.get();
  LogFollower follower(loop_, options);
  ASSERT_TRUE(follower.Follow(Stream("out", "o ", 1)).ok());
  ASSERT_TRUE(follower.Follow(Stream("err", "e ", 2)).ok());
  std::string out;
  std::string err;
  for (int i = 0; i < 2000; ++i) {
    out += std::string(static_cast<std::size_t>(i) % 90, 'o') + "\n";
    err += std::string(static_cast<std::size_t>(i) % 70, 'e') + "\n";
  }
  AppendTo(Path("out"), out);
  AppendTo(Path("err"), err);
  std::string shown;
  EXPECT_TRUE(RunUntil(loop_, [&] {
    clock_.Advance(10ms);
    shown += ReadAvailable(out_.read_end.get(), 3000);
    return LinesOf(shown).size() == 4000 && shown.back() == '\n';
  }));
  EXPECT_TRUE(shown == Merged());
}

TEST_F(LogFollowerTest, ColorsThePrefixOnATerminalAlone) {
  const PseudoTerminal terminal(80);
  for (const bool color : {true, false}) {
    LogFollowerOptions options = Options();
    options.stderr_fd = terminal.program.get();
    options.color = color;
    LogFollower follower(loop_, options);
    FollowedStream stream = Stream("0", "[0] ", 2);
    stream.color = 32;
    ASSERT_TRUE(follower.Follow(stream).ok());
    stream.console_fd = 1;
    ASSERT_TRUE(follower.Follow(stream).ok());
    if (color) AppendTo(Path("0"), "\x1b[1mtext\x1b[0m\n");
    follower.Drain(1s);
    EXPECT_EQ(ReadAvailable(terminal.user.get()),
              color ? "\x1b[32m[0] \x1b[0m\x1b[1mtext\x1b[0m\r\n" : "[0] \x1b[1mtext\x1b[0m\r\n");
    EXPECT_EQ(Shown(), "[0] \x1b[1mtext\x1b[0m\n") << "a pipe gets no colour of ours";
  }
}

TEST_F(LogFollowerTest, ShowsProgressBelowTheLinesAndTakesItAwayInDrain) {
  const PseudoTerminal terminal(30);
  LogFollowerOptions options = Options();
  options.stdout_fd = options.stderr_fd = terminal.program.get();
  LogFollower follower(loop_, options);
  ASSERT_TRUE(follower.Follow(Stream("0", "[0] ")).ok());
  std::string bytes;
  const auto screen = [&] {
    RunOn();
    bytes += ReadAvailable(terminal.user.get());
    return ScreenAfter(bytes);
  };
  follower.ShowProgress("step 1 " + std::string(100, '#'));
  EXPECT_THAT(screen(), ElementsAre("step 1 ######################"));
  AppendTo(Path("0"), "loss 3\n");
  EXPECT_THAT(screen(), ElementsAre("[0] loss 3", "step 1 ######################"));
  follower.LogLine("fulldeck: hello");
  follower.ShowProgress("step 2");
  EXPECT_THAT(screen(), ElementsAre("[0] loss 3", "fulldeck: hello", "step 2"));
  follower.Drain(10s);
  EXPECT_THAT(screen(), ElementsAre("[0] loss 3", "fulldeck: hello", ""));
  EXPECT_THAT(Merged(), Not(HasSubstr("step")));
}

TEST(LogFollowerInAFlood, SeesToOtherThingsWhileFilesWaitToBeRead) {
  const fulldeck::testing::TemporaryFolder folder;
  base::EventLoop loop;
  LogFollowerOptions options;
  options.merged_path = folder.string() + "/train.log";
  options.stdout_fd = options.stderr_fd = -1;
  LogFollower follower(loop, options);
  const std::string path = folder.string() + "/0";
  std::string text;
  while (text.size() < 64'000'000) text += "a line of a rank that writes very much\n";
  AppendTo(path, text);
  FollowedStream stream;
  stream.path = path;
  ASSERT_TRUE(follower.Follow(stream).ok());
  for (int i = 0; i < 2; ++i) loop.RunOnce(0ms);

  auto pipe = base::MakePipe();
  ASSERT_TRUE(pipe.ok());
  bool pipe_seen = false;
  bool timer_seen = false;
  ASSERT_EQ(write(pipe->write_end.get(), "x", 1), 1);
  const auto watch = loop.WhenReadable(pipe->read_end.get(), [&] { pipe_seen = true; });
  ASSERT_TRUE(watch.ok());
  loop.After(0ms, [&] { timer_seen = true; });
  for (int i = 0; i < 4; ++i) loop.RunOnce(0ms);
  EXPECT_TRUE(pipe_seen);
  EXPECT_TRUE(timer_seen);
  loop.Remove(*watch);
  EXPECT_TRUE(RunUntil(loop, [&] { return std::filesystem::file_size(options.merged_path) == text.size(); }));
}

}  // namespace
}  // namespace fulldeck::logs
