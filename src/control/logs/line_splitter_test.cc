#include "logs/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fulldeck::logs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Collector final : public LineSplitter::Sink {
 public:
  void OnLine(std::string_view text, bool goes_on) override {
    lines.push_back(std::string(text) + (goes_on ? "~" : ""));
  }
  void OnOverwritten(std::string_view text) override { overwritten.emplace_back(text); }
  std::vector<std::string> lines;
  std::vector<std::string> overwritten;
};

struct Row {
  std::string bytes;
  std::vector<std::string> lines;  // after the end of the stream
  std::vector<std::string> overwritten;
};

const std::vector<Row>& Table() {
  using namespace std::string_literals;
  static const std::vector<Row> rows = {
      {"", {}, {}},
      {"a\n", {"a"}, {}},
      {"\n\n", {"", ""}, {}},
      {"a\nb", {"a", "b"}, {}},
      {"a\r\nb\r\n", {"a", "b"}, {}},
      {"a\r\r\n", {"a"}, {}},
      {"\r\n", {""}, {}},
      {"\r", {}, {}},
      {"10%\r20%\r30%\n", {"30%"}, {"10%", "20%"}},
      {"\r10%\r20%\ndone\n", {"20%", "done"}, {"", "10%"}},
      {"10%\r100%\r\nnext\n", {"100%", "next"}, {"10%"}},
      {"10%\r20%\r", {"20%"}, {"10%"}},
      {"a\r\r\rb\n", {"b"}, {"a"}},
      {"a\rb\r\n\rc\n", {"b", "c"}, {"a", ""}},
      {"\x1b[31mred\x1b[0m\n", {"\x1b[31mred\x1b[0m"}, {}},
      {"nul\0byte\n"s, {"nul\0byte"s}, {}},
      {"\xff\xfe\n", {"\xff\xfe"}, {}},
  };
  return rows;
}

TEST(LineSplitter, MakesTheLinesOfTheTableHoweverTheBytesAreCut) {
  for (const Row& row : Table()) {
    for (std::size_t chunk = 1; chunk <= row.bytes.size() + 1; ++chunk) {
      LineSplitter splitter;
      Collector got;
      for (std::size_t at = 0; at < row.bytes.size(); at += chunk) {
        splitter.Feed(std::string_view(row.bytes).substr(at, chunk), got);
      }
      splitter.Finish(got);
      EXPECT_EQ(got.lines, row.lines) << ::testing::PrintToString(row.bytes) << " in pieces of " << chunk;
      EXPECT_EQ(got.overwritten, row.overwritten) << ::testing::PrintToString(row.bytes) << " in pieces of " << chunk;
      EXPECT_EQ(splitter.unfinished(), "");
    }
  }
}

TEST(LineSplitter, ShowsWhatIsThereOfAnUnfinishedLine) {
  LineSplitter splitter;
  Collector got;
  splitter.Feed("done\nName? ", got);
  EXPECT_EQ(splitter.unfinished(), "Name? ");
  EXPECT_FALSE(splitter.rewritten());
  splitter.Feed("\r10%", got);
  EXPECT_EQ(splitter.unfinished(), "10%");
  EXPECT_TRUE(splitter.rewritten());
  splitter.Feed("\nx", got);
  EXPECT_FALSE(splitter.rewritten());
  EXPECT_THAT(got.lines, ElementsAre("done", "10%"));
}

TEST(LineSplitter, PassesALineOfTheGreatestLengthOnWhole) {
  const std::string line(LineSplitter::kLongestLine, 'x');
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{1000}, line.size() + 1}) {
    LineSplitter splitter;
    Collector got;
    const std::string bytes = line + "\n";
    for (std::size_t at = 0; at < bytes.size(); at += chunk) {
      splitter.Feed(std::string_view(bytes).substr(at, chunk), got);
    }
    EXPECT_THAT(got.lines, ElementsAre(line));
  }
}

TEST(LineSplitter, CutsALongLineIntoChunksAndLosesNothing) {
  std::string line;
  while (line.size() < 5 * LineSplitter::kLongestLine + 77) line += "0123456789 ";
  for (const std::size_t chunk : {std::size_t{777}, std::size_t{100'000}, line.size() + 1}) {
    LineSplitter splitter;
    Collector got;
    const std::string bytes = line + "\nnext\n";
    for (std::size_t at = 0; at < bytes.size(); at += chunk) {
      splitter.Feed(std::string_view(bytes).substr(at, chunk), got);
    }
    ASSERT_EQ(got.lines.size(), 7U);
    std::string joined;
    for (std::size_t i = 0; i < 6; ++i) {
      std::string part = got.lines[i];
      EXPECT_EQ(part.back() == '~', i < 5);
      if (i < 5) part.pop_back();
      EXPECT_LE(part.size(), LineSplitter::kLongestLine);
      joined += part;
    }
    EXPECT_EQ(joined, line);
    EXPECT_EQ(got.lines[6], "next");
  }
}

TEST(LineSplitter, NeverCutsALongLineInsideACharacter) {
  for (std::size_t shift = 0; shift < 4; ++shift) {
    const std::string start(LineSplitter::kLongestLine - shift, 'x');
    LineSplitter splitter;
    Collector got;
    splitter.Feed(start + "\xf0\x9f\x98\x80 end\n", got);
    ASSERT_EQ(got.lines.size(), 2U) << shift;
    EXPECT_EQ(got.lines[0], start + "~");
    EXPECT_EQ(got.lines[1], "\xf0\x9f\x98\x80 end");
  }
}

TEST(LineSplitter, HoldsNoMoreThanOneLineOfAStreamWithoutNewlines) {
  LineSplitter splitter;
  Collector got;
  const std::string bar = "\r" + std::string(99, '#');
  for (int i = 0; i < 100'000; ++i) splitter.Feed(bar, got);
  EXPECT_THAT(got.lines, IsEmpty());
  EXPECT_EQ(splitter.unfinished(), bar.substr(1));
  EXPECT_EQ(got.overwritten.size(), 100'000U);
}

TEST(UnfinishedCharacter, CountsTheBytesThatWaitForMore) {
  EXPECT_EQ(UnfinishedCharacter(""), 0U);
  EXPECT_EQ(UnfinishedCharacter("abc"), 0U);
  EXPECT_EQ(UnfinishedCharacter("a\xc3"), 1U);
  EXPECT_EQ(UnfinishedCharacter("a\xc3\xa9"), 0U);
  EXPECT_EQ(UnfinishedCharacter("\xe4\xbd"), 2U);
  EXPECT_EQ(UnfinishedCharacter("\xf0\x9f\x98"), 3U);
  EXPECT_EQ(UnfinishedCharacter("\x80\x80\x80\x80"), 0U) << "not UTF-8: nothing to wait for";
}

}  // namespace
}  // namespace fulldeck::logs
