#include "logs/appended_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "logs/log_testing.h"
#include "temporary_folder.h"

namespace fulldeck::logs {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class AppendedLogTest : public ::testing::Test {
 protected:
  AppendedLogTest() : path_(folder_.string() + "/train.log") {}

  std::string Content() const { return testing_support::ContentOf(path_); }

  fulldeck::testing::TemporaryFolder folder_;
  std::string path_;
  base::ManualClock clock_;
};

TEST_F(AppendedLogTest, AppendsToWhatIsThereAlready) {
  std::ofstream(path_) << "before\n";
  AppendedLog log(path_, clock_);
  log.PutLine("[3] ", "text", " mark");
  log.PutLine("", "", "");
  EXPECT_EQ(Content(), "before\n") << "lines are gathered first";
  log.Flush();
  EXPECT_EQ(Content(), "before\n[3] text mark\n\n");
  EXPECT_EQ(log.TakeWarning(), "");
}

TEST_F(AppendedLogTest, WritesTheRestWhenItIsDestroyed) {
  { AppendedLog(path_, clock_).PutLine("", "last", ""); }
  EXPECT_EQ(Content(), "last\n");
}

TEST_F(AppendedLogTest, ReportsOnceThatTheDiskIsFullAndCountsWhatIsLost) {
  AppendedLog log("/dev/full", clock_);
  const std::string line(999, 'x');
  for (int i = 0; i < 1000; ++i) log.PutLine("", line, "");
  EXPECT_TRUE(log.failing());
  const std::string warning = log.TakeWarning();
  EXPECT_THAT(warning, HasSubstr("/dev/full"));
  EXPECT_THAT(warning, HasSubstr("No space left on device"));
  clock_.Advance(5s);
  log.Flush();
  EXPECT_EQ(log.TakeWarning(), "") << "once is enough";
  EXPECT_EQ(log.lost_lines(), 1000 - AppendedLog::kBuffer / 1000);
  log.Finish();
  EXPECT_EQ(log.lost_lines(), 1000U);
  EXPECT_THAT(log.TakeWarning(), HasSubstr("1000 lines are missing in /dev/full"));
  log.Finish();
  EXPECT_EQ(log.TakeWarning(), "");
}

TEST_F(AppendedLogTest, ContinuesInTheMiddleOfTheLineWhenThereIsRoomAgainAndReportsWhatIsMissing) {
  AppendedLog log(path_, clock_);
  const std::string line(999, 'x');
  {
    const testing_support::FileSizeLimit full(1500);
    for (int i = 0; i < 300; ++i) log.PutLine("", line, "");
    EXPECT_EQ(Content().size(), 1500U);
    EXPECT_GT(log.lost_lines(), 0U);
  }
  log.PutLine("", "held", "");
  log.Flush();
  EXPECT_EQ(Content().size(), 1500U) << "it is too early to try again";
  const std::uint64_t lost = log.lost_lines();
  clock_.Advance(1s);
  log.PutLine("", "after", "");
  log.Finish();
  EXPECT_FALSE(log.failing());
  std::string expected;
  for (std::uint64_t i = 0; i < 300 - lost; ++i) expected += line + "\n";
  expected += "fulldeck: " + std::to_string(lost) + " lines are missing here: File too large\nheld\nafter\n";
  EXPECT_TRUE(Content() == expected) << "the two are too long to print";
  EXPECT_THAT(log.TakeWarning(), HasSubstr(std::to_string(lost) + " lines are missing in " + path_));
}

TEST_F(AppendedLogTest, EndsATornLineWhoseRestWasGivenUp) {
  AppendedLog log(path_, clock_);
  {
    const testing_support::FileSizeLimit full(3);
    log.PutLine("", "torn", "");
    log.PutLine("", "lost", "");
    log.Finish();
    log.Finish();
    EXPECT_EQ(log.lost_lines(), 2U);
    log.TakeWarning();
  }
  clock_.Advance(1s);
  log.PutLine("", "next", "");
  log.Finish();
  EXPECT_EQ(Content(), "tor\nfulldeck: 2 lines are missing here: File too large\nnext\n");
  EXPECT_EQ(log.TakeWarning(), "") << "they were said before";
}

TEST_F(AppendedLogTest, WaitsForAFolderThatComesLater) {
  path_ = folder_.string() + "/later/train.log";
  AppendedLog log(path_, clock_);
  EXPECT_THAT(log.TakeWarning(), HasSubstr("No such file or directory"));
  log.PutLine("", "kept", "");
  log.Flush();
  std::filesystem::create_directory(folder_.string() + "/later");
  clock_.Advance(1s);
  log.Flush();
  EXPECT_EQ(Content(), "kept\n");
  EXPECT_EQ(log.lost_lines(), 0U);
}

}  // namespace
}  // namespace fulldeck::logs
