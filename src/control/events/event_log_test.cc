#include "events/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fulldeck::events {
namespace {

using nlohmann::json;

std::vector<json> LinesOf(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

class EventLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "events-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  const Event idle_{"card-idle",
                    Severity::kWarning,
                    {{"card", std::string("gcu:3")}, {"rank", std::int64_t{3}}, {"ranks", Numbers({1, 2})}},
                    "gcu:3 is idle"};
};

TEST_F(EventLogTest, WritesOneJsonObjectPerLineToEveryFile) {
  EventLog log;
  ASSERT_TRUE(log.Open(Path("a")));
  ASSERT_TRUE(log.Open(Path("b")));
  EXPECT_FALSE(log.Append(idle_, base::TimePoint(std::chrono::nanoseconds(42))));
  EXPECT_FALSE(log.Append(idle_, base::TimePoint(std::chrono::nanoseconds(43))));
  for (const char* name : {"a", "b"}) {
    const auto lines = LinesOf(Path(name));
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0]["version"], 1);
    EXPECT_EQ(lines[0]["id"], "card-idle");
    EXPECT_EQ(lines[0]["severity"], "warning");
    EXPECT_EQ(lines[0]["monotonic_ns"], 42);
    EXPECT_EQ(lines[0]["card"], "gcu:3");
    EXPECT_EQ(lines[0]["rank"], 3);
    EXPECT_EQ(lines[0]["ranks"], json({1, 2}));
    EXPECT_EQ(lines[0]["message"], "gcu:3 is idle");
  }
}

TEST_F(EventLogTest, IsReadableByItsOwnerOnly) {
  EventLog log;
  ASSERT_TRUE(log.Open(Path("a")));
  struct stat facts {};
  ASSERT_EQ(stat(Path("a").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(EventLogTest, RefusesASymbolicLink) {
  ASSERT_EQ(symlink(Path("target").c_str(), Path("link").c_str()), 0);
  EventLog log;
  EXPECT_FALSE(log.Open(Path("link")));
  EXPECT_FALSE(std::filesystem::exists(Path("target")));
}

TEST_F(EventLogTest, AFullDiskIsReportedOnceAndStopsNothing) {
  EventLog log;
  ASSERT_TRUE(log.Open("/dev/full"));
  ASSERT_TRUE(log.Open(Path("a")));
  EXPECT_TRUE(log.Append(idle_, base::TimePoint()));
  EXPECT_FALSE(log.Append(idle_, base::TimePoint()));
  EXPECT_EQ(LinesOf(Path("a")).size(), 2u);
}

TEST_F(EventLogTest, TextThatIsNotUtf8IsReplacedNotThrown) {
  EXPECT_TRUE(json::accept(ToJsonLine({"x", Severity::kInfo, {}, "\xff\xfe"}, 0, base::TimePoint())));
}

TEST(Fields, AFieldOfAnotherTypeIsNone) {
  Fields fields{{"rank", std::int64_t{3}}, {"card", std::string("gcu:3")}};
  EXPECT_EQ(fields.Int("rank"), 3);
  EXPECT_EQ(fields.Int("card"), -1);
  EXPECT_EQ(fields.Text("rank"), "");
  fields.Set("rank", std::int64_t{4});
  EXPECT_EQ(fields.Int("rank"), 4);
  EXPECT_EQ(fields.values().size(), 2u);
}

}  // namespace
}  // namespace fulldeck::events
