#include "job/runs/run_logs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "job/runs/tailed_file.h"
#include "temporary_folder.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TailedFileTest : public ::testing::Test {
 protected:
  void Append(std::string_view text) { std::ofstream(path_, std::ios::app) << text; }
  std::string LastLines(std::uint64_t lines) {
    const base::UniqueFd file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    const auto begin = BeginOfLastLines(file.get(), lines);
    EXPECT_TRUE(begin.ok());
    std::ifstream stream(path_);
    stream.seekg(*begin);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }
  std::string Poll(TailedFile& file) {
    std::string text;
    for (;;) {
      const auto more = file.Poll([&](std::string_view bytes) { text += bytes; });
      EXPECT_TRUE(more.ok()) << more.error().message;
      if (!more.ok() || !*more) return text;
    }
  }

  static constexpr char kName[] = "log";
  testing::TemporaryFolder temporary_;
  std::string path_ = temporary_.string() + "/" + kName;
};

TEST_F(TailedFileTest, FindsTheLastLines) {
  Append("one\ntwo\nthree\n");
  EXPECT_EQ(LastLines(0), "");
  EXPECT_EQ(LastLines(1), "three\n");
  EXPECT_EQ(LastLines(2), "two\nthree\n");
  EXPECT_EQ(LastLines(3), "one\ntwo\nthree\n");
  EXPECT_EQ(LastLines(1000), "one\ntwo\nthree\n");
  Append("unfinished");
  EXPECT_EQ(LastLines(1), "unfinished");
  EXPECT_EQ(LastLines(2), "three\nunfinished");
  Append("\n\n\n");
  EXPECT_EQ(LastLines(2), "\n\n");
}

TEST_F(TailedFileTest, FindsTheLastLinesOfALongFileAndOfLongLines) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "line " + std::to_string(i) + "\n";
  text += std::string(200'000, 'x') + "\n";
  Append(text);
  EXPECT_EQ(LastLines(1), std::string(200'000, 'x') + "\n");
  EXPECT_EQ(LastLines(2), "line 29999\n" + std::string(200'000, 'x') + "\n");
  EXPECT_EQ(LastLines(20'001).substr(0, 11), "line 10000\n");
  EXPECT_EQ(LastLines(30'001), text);
}

TEST_F(TailedFileTest, PassesOnWhatComes) {
  Append("a\nb\nc\n");
  TailedFile file(temporary_.string(), kName, 2);
  EXPECT_EQ(Poll(file), "b\nc\n");
  EXPECT_EQ(Poll(file), "");
  Append("d");
  EXPECT_EQ(Poll(file), "d");
  const std::string much(3'000'000, 'y');
  Append(much);
  EXPECT_EQ(Poll(file), much);
}

TEST_F(TailedFileTest, WaitsForAFileThatIsNotThereYet) {
  TailedFile file(temporary_.string(), kName, 100);
  EXPECT_EQ(Poll(file), "");
  EXPECT_FALSE(file.opened());
  Append("here\n");
  EXPECT_EQ(Poll(file), "here\n");
  EXPECT_TRUE(file.opened());
}

TEST_F(TailedFileTest, StartsAgainWhenTheFileWasCutOrReplaced) {
  Append("old old old\n");
  TailedFile file(temporary_.string(), kName, std::nullopt);
  EXPECT_EQ(Poll(file), "old old old\n");
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  Append("cut\n");
  EXPECT_EQ(Poll(file), "cut\n");
  Append("rest\n");
  std::filesystem::rename(path_, path_ + ".1");
  Append("new\n");
  EXPECT_EQ(Poll(file), "rest\nnew\n");
  std::filesystem::remove(path_);
  EXPECT_EQ(Poll(file), "");
}

TEST_F(TailedFileTest, RefusesWhatIsNoFile) {
  std::filesystem::create_directory(path_);
  TailedFile folder(temporary_.string(), kName, std::nullopt);
  EXPECT_FALSE(folder.Poll([](std::string_view) {}).ok());
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  TailedFile fifo(temporary_.string(), kName, std::nullopt);
  EXPECT_THAT(fifo.Poll([](std::string_view) {}).error().message, HasSubstr("is no plain file"));
  std::filesystem::remove(path_);
  temporary_.Write("elsewhere", "secret\n");
  std::filesystem::create_symlink("elsewhere", path_);
  TailedFile link(temporary_.string(), kName, std::nullopt);
  EXPECT_EQ(link.Poll([](std::string_view) {}).error().system_error, ELOOP);
}

class RunLogsTest : public ::testing::Test {
 protected:
  RunLogsTest() { std::filesystem::create_directory(work_); }
  void MakeRun(const std::string& name, int minutes_ago) {
    temporary_.Write("work/fulldeck_runs/" + name + "/logs/train.log", name);
    temporary_.Write("work/fulldeck_runs/" + name + "/attempt_0/0/stdout.log", name);
    const auto when = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(minutes_ago);
    std::filesystem::last_write_time(Runs() + name + "/logs/train.log", when);
    std::filesystem::last_write_time(Runs() + name, when - std::chrono::hours(1));
  }
  std::string Runs() const { return work_ + "/fulldeck_runs/"; }
  std::string Directory(const std::string& which) {
    const auto logs = FindRunLogs(registry_, which, work_);
    return logs.ok() ? logs->directory : "error: " + logs.error().message;
  }
  void Register(const std::string& run_id, bool alive = true) {
    RunRecord record;
    record.run_id = run_id;
    record.directory = "/data/" + run_id;
    record.front = record.supervisor = wire::ThisProcess();
    if (!alive) record.supervisor.start_ticks += 1;
    ASSERT_TRUE(registry_.Write(record).ok());
  }

  testing::TemporaryFolder temporary_;
  std::string work_ = temporary_.string() + "/work";
  RunRegistry registry_{base::Environment{{wire::kRuntimeDirVariable, temporary_.string() + "/runtime"}}};
};

TEST_F(RunLogsTest, WithoutANameAreThoseOfTheRunningRunElseTheNewest) {
  EXPECT_THAT(Directory(""), HasSubstr("no run is running, and there is none below"));
  MakeRun("older", 30);
  MakeRun("newest", 5);
  MakeRun("oldest", 90);
  std::filesystem::create_directories(Runs() + "not-a-run");
  EXPECT_EQ(Directory(""), Runs() + "newest");
  Register("dead", false);
  EXPECT_EQ(Directory(""), Runs() + "newest");
  Register("living");
  EXPECT_EQ(Directory(""), "/data/living");
  Register("second");
  EXPECT_THAT(Directory(""), HasSubstr("several runs are running; name one"));
}

TEST_F(RunLogsTest, AreFoundByIdPrefixAndDirectory) {
  MakeRun("alpha-1", 3);
  MakeRun("alpha-12", 2);
  MakeRun("beta", 1);
  Register("gamma");
  EXPECT_EQ(Directory("gam"), "/data/gamma");
  EXPECT_EQ(Directory("beta"), Runs() + "beta");
  EXPECT_EQ(Directory("be"), Runs() + "beta");
  EXPECT_EQ(Directory("alpha-1"), Runs() + "alpha-1");
  EXPECT_THAT(Directory("alpha"), HasSubstr("'alpha' is not the beginning of one run alone: alpha-12, alpha-1"));
  EXPECT_EQ(Directory(Runs() + "beta/"), Runs() + "beta");
  EXPECT_EQ(Directory("fulldeck_runs/beta"), work_ + "/fulldeck_runs/beta");
  EXPECT_THAT(Directory(temporary_.string()), HasSubstr("is no run directory"));
  EXPECT_THAT(Directory("delta"), HasSubstr("there is no run 'delta'. Runs of yours: gamma. Nor is there"));
  EXPECT_THAT(Directory("../beta"), HasSubstr("there is no run '../beta'"));
}

TEST_F(RunLogsTest, OfARankAreThoseOfTheLatestAttempt) {
  MakeRun("run", 1);
  temporary_.Write("work/fulldeck_runs/run/attempt_2/1/stdout.log", "");
  temporary_.Write("work/fulldeck_runs/run/attempt_10/1/stdout.log", "");
  temporary_.Write("work/fulldeck_runs/run/attempt_x/1/stdout.log", "");
  const auto logs = FindRunLogs(registry_, "run", work_);
  ASSERT_TRUE(logs.ok());
  EXPECT_EQ(LatestAttempt(logs->directory), 10);
  EXPECT_THAT(*LogFiles(*logs, {}), ElementsAre(Runs() + "run/logs/train.log"));
  EXPECT_THAT(*LogFiles(*logs, {1}),
              ElementsAre(Runs() + "run/attempt_10/1/stdout.log", Runs() + "run/attempt_10/1/stderr.log"));
  EXPECT_THAT(*LogFiles(*logs, {1, true, false}), ElementsAre(Runs() + "run/attempt_10/1/stdout.log"));
  EXPECT_THAT(*LogFiles(*logs, {1, false, true}), ElementsAre(Runs() + "run/attempt_10/1/stderr.log"));
  EXPECT_THAT(LogFiles(*logs, {5}).error().message, HasSubstr("local ranks 1 to 1 have logs there"));
  EXPECT_FALSE(LatestAttempt("/no/such/folder"));
}

TEST_F(RunLogsTest, CountRanksAsTheWholeRunDoes) {
  RunLogs logs{"job", "/data/job", RunRegistry::Entry{}};
  logs.entry->alive = true;
  logs.entry->record.first_rank = 4;
  logs.entry->record.attempt = 1;
  logs.entry->record.cards.resize(4);
  EXPECT_THAT(*LogFiles(logs, {6, true, false}), ElementsAre("/data/job/attempt_1/2/stdout.log"));
  EXPECT_EQ(LogFiles(logs, {3}).error().message, "rank 3 of run job is not on this host: ranks 4 to 7 are");
  EXPECT_EQ(LogFiles(logs, {8}).error().message, "rank 8 of run job is not on this host: ranks 4 to 7 are");
}

TEST_F(RunLogsTest, NameEveryFolderOnTheWay) {
  const RunLogs logs{"job", "/data/job", std::nullopt};
  EXPECT_THAT(LogFolders(logs, {"/data/job/logs/train.log"}), ElementsAre("/data/job", "/data/job/logs"));
  EXPECT_THAT(LogFolders(logs, {"/data/job/attempt_0/1/stdout.log", "/data/job/attempt_0/1/stderr.log"}),
              ElementsAre("/data/job", "/data/job/attempt_0", "/data/job/attempt_0/1"));
}

}  // namespace
}  // namespace fulldeck::job
