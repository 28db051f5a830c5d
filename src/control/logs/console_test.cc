#include "logs/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/text.h"
#include "logs/log_testing.h"
#include "temporary_folder.h"

namespace fulldeck::logs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing_support::ContentOf;
using testing_support::LinesOf;
using testing_support::PseudoTerminal;
using testing_support::ReadAvailable;
using testing_support::RunUntil;
using testing_support::ScreenAfter;

std::string NumberedLine(int number) {
  return std::to_string(number) + " " + std::string(static_cast<std::size_t>(number * 7 % 180), '.') + " end";
}

base::TimePoint In(base::Duration time) {
  return base::SteadyClock::Instance().Now() + time;
}

class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() {
    auto made = base::MakePipe();
    EXPECT_TRUE(made.ok());
    pipe_ = std::move(*made);
  }

  // Each line is one of the lines that were put, in order, or reports how many are missing at that place.
  static void ExpectWholeLinesAndHonestCounts(const std::string& text, int total) {
    int next = 0;
    for (const std::string& line : LinesOf(text)) {
      const std::string_view start = "fulldeck: ";
      const std::string_view end = " lines were not shown here; they are in /run/train.log";
      if (line.starts_with(start) && line.ends_with(end)) {
        const std::string_view number =
            std::string_view(line).substr(start.size(), line.size() - start.size() - end.size());
        next += base::ParseInteger<int>(number).value_or(-1);
      } else {
        ASSERT_EQ(line, NumberedLine(next));
        ++next;
      }
    }
    EXPECT_EQ(next, total);
    EXPECT_EQ(text.back(), '\n');
  }

  testing_support::WithoutSigpipe without_sigpipe_;
  fulldeck::testing::TemporaryFolder folder_;
  base::EventLoop loop_;
  base::Pipe pipe_;
};

TEST_F(ConsoleTest, NeverWaitsForAPipeThatNobodyReadsAndReportsWhatItDropped) {
  const int flags = fcntl(pipe_.write_end.get(), F_GETFL);
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  constexpr int kLines = 40'000;
  for (int i = 0; i < kLines; ++i) console.PutLine("", NumberedLine(i), "");
  console.Flush();
  EXPECT_GT(console.dropped_lines(), 0U);
  EXPECT_FALSE(loop_.RunOnce(0ms)) << "a full pipe gives the loop nothing to do";
  EXPECT_EQ(fcntl(pipe_.write_end.get(), F_GETFL), flags) << "the user's shell shares these";

  std::string got;
  const auto read_and_check = [&] {
    got += ReadAvailable(pipe_.read_end.get(), 5000);
    return got.find("not shown here") != std::string::npos && got.back() == '\n';
  };
  EXPECT_TRUE(RunUntil(loop_, read_and_check));
  ExpectWholeLinesAndHonestCounts(got, kLines);
}

TEST_F(ConsoleTest, ShowsASlowReaderWholeLinesAndTheNumberOfThoseItMissed) {
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  constexpr int kLines = 60'000;
  std::string got;
  for (int i = 0; i < kLines; ++i) {
    console.PutLine("", NumberedLine(i), "");
    if (i % 100 == 99) {
      console.Flush();
      loop_.RunOnce(0ms);
      got += ReadAvailable(pipe_.read_end.get(), 5000);
    }
  }
  EXPECT_TRUE(RunUntil(loop_, [&] {
    const std::string more = ReadAvailable(pipe_.read_end.get());
    got += more;
    return more.empty() && console.WaitUntilQueued(0, In(0ms));
  }));
  got += ReadAvailable(pipe_.read_end.get());
  EXPECT_GT(console.dropped_lines(), 0U);
  ExpectWholeLinesAndHonestCounts(got, kLines);
}

TEST_F(ConsoleTest, GivesLinesOfOursAReserveInAFullQueue) {
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  for (int i = 0; i < 20'000; ++i) console.PutLine("", NumberedLine(i), "");
  ASSERT_GT(console.dropped_lines(), 0U);
  console.PutOurLine("fulldeck: rank 3 was killed by SIGSEGV");
  std::string got;
  EXPECT_TRUE(RunUntil(loop_, [&] {
    got += ReadAvailable(pipe_.read_end.get());
    return got.find("SIGSEGV\n") != std::string::npos;
  }));
  EXPECT_EQ(LinesOf(got).back(), "fulldeck: rank 3 was killed by SIGSEGV");
}

TEST_F(ConsoleTest, GoesOffWhenTheReaderWentAway) {
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  pipe_.read_end.Reset();
  console.PutLine("", "text", "");
  console.Flush();
  EXPECT_FALSE(console.on());
  EXPECT_EQ(console.TakeError(), "Broken pipe");
  EXPECT_EQ(console.TakeError(), "");
  console.PutLine("", "more", "");
  console.PutOurLine("more");
  console.Flush();
  EXPECT_FALSE(loop_.RunOnce(0ms));
}

TEST_F(ConsoleTest, GoesOffWhenTheReaderGoesAwayWhileLinesWait) {
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  for (int i = 0; i < 2000; ++i) console.PutLine("", NumberedLine(i), "");
  console.Flush();
  ASSERT_TRUE(console.on());
  pipe_.read_end.Reset();
  EXPECT_TRUE(RunUntil(loop_, [&] { return !console.on(); }));
  EXPECT_TRUE(console.WaitUntilQueued(0, In(10s)));
}

TEST_F(ConsoleTest, IsOffWhenTheDescriptorIsClosedOrAbsent) {
  const int closed = dup(pipe_.write_end.get());
  close(closed);
  Console console(loop_, closed, "/run/train.log");
  EXPECT_FALSE(console.on());
  EXPECT_EQ(console.TakeError(), "Bad file descriptor");
  console.PutLine("", "text", "");
  console.Flush();
  Console absent(loop_, -1, "/run/train.log");
  EXPECT_FALSE(absent.on());
  EXPECT_EQ(absent.TakeError(), "") << "nobody wanted it";
}

TEST_F(ConsoleTest, WritesAFileImmediatelyAndDropsNothing) {
  const std::string path = folder_.string() + "/console";
  const base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Console console(loop_, file.get(), "/run/train.log");
  constexpr int kLines = 30'000;
  for (int i = 0; i < kLines; ++i) console.PutLine("", NumberedLine(i), "");
  console.Flush();
  EXPECT_EQ(console.dropped_lines(), 0U);
  ExpectWholeLinesAndHonestCounts(ContentOf(path), kLines);
}

TEST_F(ConsoleTest, OutlivesAFullDisk) {
  const base::UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  Console console(loop_, full.get(), "/run/train.log");
  for (int i = 0; i < 20'000; ++i) console.PutLine("", NumberedLine(i), "");
  console.Flush();
  EXPECT_TRUE(console.on());
  EXPECT_GT(console.dropped_lines(), 0U);
  const base::TimePoint start = base::SteadyClock::Instance().Now();
  EXPECT_FALSE(console.WaitUntilQueued(0, In(30s)));
  EXPECT_LT(base::SteadyClock::Instance().Now() - start, 10s) << "there is nothing to wait for";
}

TEST_F(ConsoleTest, NeverWaitsForASocket) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const base::UniqueFd reader(ends[0]);
  const base::UniqueFd writer(ends[1]);
  Console console(loop_, writer.get(), "/run/train.log");
  constexpr int kLines = 40'000;
  for (int i = 0; i < kLines; ++i) console.PutLine("", NumberedLine(i), "");
  console.Flush();
  EXPECT_GT(console.dropped_lines(), 0U);
  std::string got;
  EXPECT_TRUE(RunUntil(loop_, [&] {
    got += ReadAvailable(reader.get());
    return got.find("not shown here") != std::string::npos && got.back() == '\n';
  }));
  ExpectWholeLinesAndHonestCounts(got, kLines);
}

TEST_F(ConsoleTest, UsesPollWhereThePipeCannotBeReopened) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  constexpr int kLines = 40'000;
  for (int i = 0; i < kLines; ++i) console.PutLine("", NumberedLine(i), "");
  console.Flush();
  EXPECT_GT(console.dropped_lines(), 0U);
  std::string got;
  EXPECT_TRUE(RunUntil(loop_, [&] {
    got += ReadAvailable(pipe_.read_end.get());
    return got.find("not shown here") != std::string::npos && got.back() == '\n';
  }));
  ExpectWholeLinesAndHonestCounts(got, kLines);
}

TEST_F(ConsoleTest, DropsTheQueueButNotTheRestOfALineThatWasBegun) {
  ASSERT_GT(fcntl(pipe_.write_end.get(), F_SETPIPE_SZ, 4096), 0);
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  const std::string line(10'000, 'x');
  console.PutLine("", line, "");
  console.PutLine("", "a", "");
  console.PutLine("", "b", "");
  EXPECT_FALSE(console.WaitUntilQueued(0, In(20ms)));
  console.DropQueue();
  EXPECT_EQ(console.dropped_lines(), 2U);
  std::string got;
  EXPECT_TRUE(RunUntil(loop_, [&] {
    got += ReadAvailable(pipe_.read_end.get());
    return got.find("not shown here") != std::string::npos;
  }));
  EXPECT_THAT(LinesOf(got), ElementsAre(line, "fulldeck: 2 lines were not shown here; they are in /run/train.log"));
}

TEST_F(ConsoleTest, KeepsLinesWholeInAPipeThatOthersWriteTo) {
  const base::UniqueFd other(dup(pipe_.write_end.get()));
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  std::string got;
  for (int i = 0; i < 3000; ++i) {
    console.PutLine("", NumberedLine(i), "");
    if (i % 10 == 0) {
      console.Flush();
      pollfd room{other.get(), POLLOUT, 0};
      if (poll(&room, 1, 0) == 1) {
        ASSERT_EQ(write(other.get(), "other\n", 6), 6);
      }
      got += ReadAvailable(pipe_.read_end.get(), 3000);
      loop_.RunOnce(0ms);
    }
  }
  EXPECT_TRUE(RunUntil(loop_, [&] {
    got += ReadAvailable(pipe_.read_end.get());
    return console.WaitUntilQueued(0, In(0ms));
  }));
  got += ReadAvailable(pipe_.read_end.get());
  int next = 0;
  for (const std::string& line : LinesOf(got)) {
    if (line == "other") continue;
    EXPECT_EQ(line, NumberedLine(next++));
  }
  EXPECT_EQ(next, 3000);
}

TEST_F(ConsoleTest, DrawsTheProgressLineBelowTheOthers) {
  const PseudoTerminal terminal(40);
  Console console(loop_, terminal.program.get(), "/run/train.log");
  ASSERT_TRUE(console.is_terminal());
  std::string got;
  const auto screen = [&] {
    console.Flush();
    EXPECT_TRUE(console.WaitUntilQueued(0, In(10s)));
    got += ReadAvailable(terminal.user.get());
    return ScreenAfter(got);
  };
  console.SetProgress("step 1 of 10");
  EXPECT_THAT(screen(), ElementsAre("step 1 of 10"));
  console.PutLine("[0] ", "loss 3", "");
  console.PutLine("[1] ", "x", "");
  EXPECT_THAT(screen(), ElementsAre("[0] loss 3", "[1] x", "step 1 of 10"));
  console.SetProgress("step 2");
  EXPECT_THAT(screen(), ElementsAre("[0] loss 3", "[1] x", "step 2"));
  console.SetProgress("");
  console.PutLine("", "end", "");
  EXPECT_THAT(screen(), ElementsAre("[0] loss 3", "[1] x", "end", ""));
}

TEST_F(ConsoleTest, CutsTheProgressLineToTheWidthOfTheTerminal) {
  const PseudoTerminal terminal(11);
  Console console(loop_, terminal.program.get(), "/run/train.log");
  console.SetProgress("0123456789abcdef");
  console.Flush();
  EXPECT_THAT(ScreenAfter(ReadAvailable(terminal.user.get())), ElementsAre("0123456789"));
}

TEST_F(ConsoleTest, TakesTheProgressLineAwayWhenItEnds) {
  const PseudoTerminal terminal(40);
  {
    Console console(loop_, terminal.program.get(), "/run/train.log");
    console.PutLine("", "text", "");
    console.SetProgress("step 1");
    console.Flush();
  }
  EXPECT_THAT(ScreenAfter(ReadAvailable(terminal.user.get())), ElementsAre("text", ""));
}

TEST_F(ConsoleTest, ShowsNoProgressInAPipe) {
  Console console(loop_, pipe_.write_end.get(), "/run/train.log");
  console.SetProgress("step 1");
  console.PutLine("", "text", "");
  console.Flush();
  EXPECT_EQ(ReadAvailable(pipe_.read_end.get()), "text\n");
}

TEST_F(ConsoleTest, NeverWaitsForATerminalWhoseOutputWasStopped) {
  const PseudoTerminal terminal(80);
  Console console(loop_, terminal.program.get(), "/run/train.log");
  constexpr int kLines = 40'000;
  for (int i = 0; i < kLines; ++i) console.PutLine("", NumberedLine(i), "");
  console.SetProgress("step 1");
  console.Flush();
  EXPECT_GT(console.dropped_lines(), 0U);
  std::string got;
  EXPECT_TRUE(RunUntil(loop_, [&] {
    got += ReadAvailable(terminal.user.get());
    return got.find("step 1") != std::string::npos;
  }));
  std::string lines;
  for (const std::string& line : ScreenAfter(got)) {
    if (line != "step 1") lines += line + "\n";
  }
  ExpectWholeLinesAndHonestCounts(lines, kLines);
}

TEST_F(ConsoleTest, GoesOffWhenTheTerminalIsClosed) {
  PseudoTerminal terminal(80);
  Console console(loop_, terminal.program.get(), "/run/train.log");
  terminal.user.Reset();
  console.PutLine("", "text", "");
  console.Flush();
  EXPECT_TRUE(RunUntil(loop_, [&] { return !console.on(); }));
}

TEST(LeadToTheSamePlace, DistinguishesCopiesFromOthers) {
  const auto one = base::MakePipe();
  const auto other = base::MakePipe();
  ASSERT_TRUE(one.ok() && other.ok());
  const base::UniqueFd copy(dup(one->write_end.get()));
  EXPECT_TRUE(LeadToTheSamePlace(one->write_end.get(), copy.get()));
  EXPECT_FALSE(LeadToTheSamePlace(one->write_end.get(), other->write_end.get()));
  EXPECT_FALSE(LeadToTheSamePlace(one->write_end.get(), -1));
  const PseudoTerminal terminal(80);
  const PseudoTerminal second(80);
  EXPECT_TRUE(LeadToTheSamePlace(terminal.program.get(), terminal.program.get()));
  EXPECT_FALSE(LeadToTheSamePlace(terminal.program.get(), second.program.get()));
}

TEST(CutToColumns, CountsWideCharactersTwiceAndStopsWhatATerminalWouldActOn) {
  EXPECT_EQ(CutToColumns("abcdef", 4), "abcd");
  EXPECT_EQ(CutToColumns("abc", 4), "abc");
  EXPECT_EQ(CutToColumns("abc", 0), "");
  EXPECT_EQ(CutToColumns("训练中", 5), "训练");
  EXPECT_EQ(CutToColumns("é–x", 2), "é–");
  EXPECT_EQ(CutToColumns("a\x1b[2Jb\n", 9), "a?[2Jb?");
  EXPECT_EQ(CutToColumns("\xff\xfe", 9), "??");
}

}  // namespace
}  // namespace fulldeck::logs
