#include "job/runs/run_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RunRecord Record(const std::string& run_id) {
  RunRecord record;
  record.run_id = run_id;
  record.user = "alice";
  record.host = "gpu-7";
  record.directory = "/data/fulldeck_runs/" + run_id;
  record.working_directory = "/home/alice";
  record.command = {"python3", "train.py", "--lr=0.1"};
  record.front = wire::ThisProcess();
  record.supervisor = wire::ThisProcess();
  record.board_fd = 7;
  record.started_unix_seconds = 1'790'000'000;
  record.grace_milliseconds = 12'345;
  record.attempt = 2;
  record.max_restarts = 3;
  record.first_rank = 4;
  record.world_size = 8;
  record.group_rank = 1;
  record.group_world_size = 2;
  record.ranks = {{0, {101, 5001}}, {1, {102, 5002}}};
  record.cards = {RegisteredCard{"gcu 4", "SN4"}, std::nullopt};
  record.cgroups = {"/sys/fs/cgroup/fulldeck-1"};
  return record;
}

class RunRegistryTest : public ::testing::Test {
 protected:
  static std::string Id(const RunRegistry::Entry& entry) { return entry.record.run_id; }
  std::vector<std::string> Ids() {
    std::vector<std::string> ids;
    warnings_.clear();
    for (const auto& entry : registry_.List(&warnings_)) ids.push_back(Id(entry));
    return ids;
  }
  std::string Write(const RunRecord& record) {
    const auto path = registry_.Write(record);
    EXPECT_TRUE(path.ok()) << path.error().message;
    return path.ok() ? *path : "";
  }

  testing::TemporaryFolder temporary_;
  std::string folder_ = temporary_.string() + "/runtime";
  RunRegistry registry_{base::Environment{{wire::kRuntimeDirVariable, folder_}}};
  std::vector<std::string> warnings_;
};

TEST_F(RunRegistryTest, ReadsBackWhatWasWritten) {
  const RunRecord written = Record("run-1");
  const std::string path = Write(written);
  EXPECT_EQ(path.rfind(folder_ + "/runs/run-1.", 0), 0U);
  const auto entries = registry_.List();
  ASSERT_THAT(entries, SizeIs(1));
  const RunRecord& read = entries[0].record;
  EXPECT_TRUE(entries[0].alive);
  EXPECT_EQ(entries[0].path, path);
  EXPECT_EQ(read.pid_space, ThisPidSpace());
  RunRecord expected = written;
  expected.pid_space = ThisPidSpace();
  EXPECT_EQ(FormatRunRecord(read), FormatRunRecord(expected));
  EXPECT_EQ(read.grace_milliseconds, 12'345);
  EXPECT_EQ(read.ranks.at(1).process.start_ticks, 5002U);
  EXPECT_EQ(read.cards.at(0)->serial, "SN4");
  EXPECT_FALSE(read.cards.at(1));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(RunRegistryTest, ReplacesAndRemovesTheEntryOfARun) {
  RunRecord record = Record("run-1");
  Write(record);
  record.attempt = 5;
  Write(record);
  ASSERT_THAT(registry_.List(), SizeIs(1));
  EXPECT_EQ(registry_.List()[0].record.attempt, 5);
  registry_.Remove(record);
  EXPECT_THAT(Ids(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/runs")) << "no draft is left either";
}

TEST_F(RunRegistryTest, KeepsLaunchersOfOneJobApart) {
  RunRecord record = Record("job");
  Write(record);
  record.front.pid = 1;
  record.group_rank = 0;
  Write(record);
  EXPECT_THAT(Ids(), ElementsAre("job", "job"));
  const auto both = registry_.FindAll("job");
  ASSERT_TRUE(both.ok());
  EXPECT_THAT(*both, SizeIs(2));
  const auto first = registry_.Find("job");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->record.group_rank, 0);
}

TEST_F(RunRegistryTest, KnowsWhetherTheSupervisorLives) {
  RunRecord record = Record("dead");
  record.supervisor.start_ticks += 1;  // the pid is in use again
  Write(record);
  record = Record("gone");
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  record.front.pid = record.supervisor.pid = child;
  Write(record);
  record = Record("never");
  record.supervisor = {0, 0};
  Write(record);
  for (const auto& entry : registry_.List()) EXPECT_FALSE(entry.alive) << Id(entry);
  EXPECT_THAT(Ids(), SizeIs(3)) << "listing removes nothing";
}

TEST_F(RunRegistryTest, RecognizesPidsOfAnotherBootAndAnotherContainer) {
  const std::string here = ThisPidSpace();
  ASSERT_NE(here.find('/'), std::string::npos);
  const std::string name_space = here.substr(here.find('/'));
  RunRecord record = Record("before-the-reboot");
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  record.host = host;
  record.pid_space = "another-boot" + name_space;
  Write(record);
  record = Record("on-another-host");
  record.host = "somewhere-else";
  record.pid_space = "another-boot" + name_space;
  Write(record);
  record = Record("in-a-container");
  record.pid_space = here.substr(0, here.find('/')) + "/pid:[1]";
  Write(record);
  const auto entries = registry_.List(&warnings_);
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(Id(entries[0]), "before-the-reboot");
  EXPECT_FALSE(entries[0].alive) << "whatever has those pids now";
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("in-a-container was started in another container")));
}

TEST_F(RunRegistryTest, ListsTheOldestFirst) {
  for (const int age : {2, 0, 1}) {
    RunRecord record = Record("run-" + std::to_string(age));
    record.started_unix_seconds = 1'000 + age;
    Write(record);
  }
  EXPECT_THAT(Ids(), ElementsAre("run-0", "run-1", "run-2"));
}

TEST_F(RunRegistryTest, FindsByIdByPrefixAndByDirectory) {
  std::filesystem::create_directory(temporary_.path() / "out");
  RunRecord record = Record("alpha-1");
  record.directory = temporary_.string() + "/out";
  Write(record);
  Write(Record("alpha-12"));
  Write(Record("beta"));
  EXPECT_EQ(Id(*registry_.Find("alpha-1")), "alpha-1") << "the whole id wins over a prefix";
  EXPECT_EQ(Id(*registry_.Find("b")), "beta");
  EXPECT_EQ(Id(*registry_.Find(temporary_.string() + "/./out/")), "alpha-1");
  EXPECT_THAT(registry_.Find("alpha").error().message,
              HasSubstr("'alpha' is not the beginning of one run alone. Runs of yours: alpha-1, alpha-12."));
  EXPECT_THAT(registry_.Find("gam\x1bma").error().message,
              HasSubstr("there is no run 'gam?ma'. Runs of yours: alpha-1, alpha-12, beta."));
  EXPECT_THAT(registry_.Find("").error().message, HasSubstr("several runs are running; name one."));
}

TEST_F(RunRegistryTest, WithoutANameFindsTheOnlyRunningOne) {
  EXPECT_EQ(registry_.Find("").error().message, "no run is running. There is no run of yours on this machine.");
  RunRecord dead = Record("dead");
  dead.supervisor.start_ticks += 1;
  Write(dead);
  EXPECT_EQ(registry_.Find("").error().message, "no run is running. Runs of yours: dead (left behind).");
  Write(Record("living"));
  EXPECT_EQ(Id(*registry_.Find("")), "living");
  EXPECT_EQ(Id(*registry_.Find("dead")), "dead");
}

TEST_F(RunRegistryTest, MakesAnyRunIdAFileName) {
  const std::string path = Write(Record("../../etc/pass wd\n" + std::string(300, 'x')));
  EXPECT_EQ(path.rfind('/'), folder_.size() + 5) << path;
  EXPECT_THAT(Ids(), SizeIs(1));
}

TEST_F(RunRegistryTest, WritesARunWhoseCommandIsVeryLong) {
  RunRecord record = Record("long");
  record.command = {"python3", "-c", std::string(2'000'000, 'x')};
  for (int i = 0; i < 100'000; ++i) record.command.push_back("argument");
  Write(record);
  ASSERT_THAT(Ids(), SizeIs(1));
  EXPECT_EQ(registry_.List()[0].record.command.at(0), "python3");
}

TEST_F(RunRegistryTest, SkipsWhatIsNoEntryAndReportsIt) {
  Write(Record("good"));
  const std::string good = FormatRunRecord(Record("good"));
  temporary_.Write("runtime/runs/empty.json", "");
  temporary_.Write("runtime/runs/half.json", good.substr(0, good.size() / 2));
  temporary_.Write("runtime/runs/list.json", "[1, 2]");
  temporary_.Write("runtime/runs/deep.json", std::string(100'000, '['));
  temporary_.Write("runtime/runs/large.json", std::string(std::size_t{2} << 20, ' '));
  temporary_.Write("runtime/runs/notes.txt", "not looked at");
  temporary_.Write("runtime/runs/.draft.json", "not looked at");
  std::filesystem::create_directory(folder_ + "/runs/folder.json");
  std::filesystem::create_symlink("/etc/passwd", folder_ + "/runs/link.json");
  ASSERT_EQ(mkfifo((folder_ + "/runs/fifo.json").c_str(), 0600), 0);
  EXPECT_THAT(Ids(), ElementsAre("good"));
  EXPECT_THAT(warnings_, SizeIs(8));
  EXPECT_THAT(warnings_, ::testing::Contains(HasSubstr("half.json cannot be understood")));
  EXPECT_THAT(warnings_, ::testing::Contains(HasSubstr("large.json is larger than 1 MiB")));
  EXPECT_THAT(warnings_, ::testing::Contains(HasSubstr("fifo.json is not a file of yours")));
}

TEST_F(RunRegistryTest, RefusesAFolderThatOthersCouldHavePlanted) {
  std::filesystem::create_directory(folder_);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(registry_.Write(Record("run")).error().message, HasSubstr("set FULLDECK_RUNTIME_DIR to one that is"));
  EXPECT_THAT(Ids(), IsEmpty());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is not a folder that only you can write to")));
  std::filesystem::remove(folder_);
  std::filesystem::create_directory(temporary_.path() / "real");
  std::filesystem::create_directory_symlink(temporary_.path() / "real", folder_);
  EXPECT_FALSE(registry_.Write(Record("run")).ok());
}

TEST_F(RunRegistryTest, UsesTheFolderOfTheSession) {
  const base::Environment session{{"XDG_RUNTIME_DIR", temporary_.string()}};
  const RunRegistry registry(session);
  const auto path = registry.Write(Record("fulldeck-registry-test"));
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_THAT(*path, ::testing::StartsWith(temporary_.string() + "/fulldeck/runs/"));
  EXPECT_TRUE(registry.Find("fulldeck-registry-test").ok());
}

TEST(RunRecordTest, NamesTheFieldThatIsWrong) {
  using Json = nlohmann::ordered_json;
  const Json good = Json::parse(FormatRunRecord(Record("run")));
  const auto error_with = [&](const char* field, const Json& value) {
    Json changed = good;
    changed[field] = value;
    const auto record = ParseRunRecord(changed.dump());
    return record.ok() ? "" : record.error().message;
  };
  EXPECT_EQ(error_with("version", 2),
            "it has version 2, this fulldeck speaks version 1: use the fulldeck that started the run");
  EXPECT_EQ(error_with("version", "1"), "field 'version' is not a number that can be");
  EXPECT_EQ(error_with("run_id", ""), "field 'run_id' is empty");
  EXPECT_EQ(error_with("run_id", 7), "field 'run_id' is not a text");
  EXPECT_EQ(error_with("directory", std::string("a\0b", 3)), "field 'directory' holds a zero byte");
  EXPECT_EQ(error_with("host", std::string(9000, 'x')), "field 'host' is longer than 8192 bytes");
  EXPECT_EQ(error_with("world_size", 0), "field 'world_size' is 0, which cannot be");
  EXPECT_EQ(error_with("world_size", 1e300), "field 'world_size' is not a number that can be");
  EXPECT_EQ(error_with("attempt", 18446744073709551615ULL), "field 'attempt' is not a number that can be");
  EXPECT_EQ(error_with("attempt", 4294967296LL), "field 'attempt' is 4294967296, which cannot be");
  EXPECT_EQ(error_with("board_fd", -2), "field 'board_fd' is -2, which cannot be");
  EXPECT_EQ(error_with("front", 3), "field 'front' field 'pid' is missing");
  EXPECT_EQ(error_with("supervisor", {{"pid", -1}, {"start_ticks", 1}}),
            "field 'supervisor' field 'pid' is -1, which cannot be");
  EXPECT_EQ(error_with("ranks", {{"local_rank", 1}}), "field 'ranks' is not a list");
  EXPECT_THAT(error_with("ranks", Json::array({1})), HasSubstr("field 'ranks' holds one whose"));
  EXPECT_EQ(error_with("ranks", std::vector<int>(5000)), "field 'ranks' holds more than 4096");
  EXPECT_THAT(error_with("cards", Json::array({{{"name", ""}, {"serial", ""}}})), HasSubstr("field 'name' is empty"));
  EXPECT_EQ(error_with("command", Json::array({1})), "field 'command' is not a text");
  EXPECT_EQ(error_with("run_id", "tame"), "");
  for (const auto& [name, value] : good.items()) {
    Json changed = good;
    changed.erase(name);
    EXPECT_FALSE(ParseRunRecord(changed.dump()).ok()) << name;
  }
}

TEST(RunRecordTest, TakesWhatCouldSteerATerminalOutOfNames) {
  RunRecord record = Record("a\x1b[2Jb");
  record.directory = "/data/\xe8\xbf\x90\xe8\xa1\x8c \x01";
  const auto read = ParseRunRecord(FormatRunRecord(record));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->run_id, "a?[2Jb");
  EXPECT_EQ(read->directory, record.directory) << "another spelling would be another folder";
}

}  // namespace
}  // namespace fulldeck::job
