#include "device/text/text_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::string_literals;
using namespace std::string_view_literals;

TEST(SplitLines, TakesUnixAndWindowsLineEnds) {
  const TextLines text = SplitLines("a\r\nb\n\nc", "tool");
  EXPECT_THAT(text.lines, ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(text.notes, IsEmpty());
  EXPECT_FALSE(text.last_line_ended);
  EXPECT_TRUE(SplitLines("a\n", "tool").last_line_ended);
  EXPECT_THAT(SplitLines("", "tool").lines, IsEmpty());
}

TEST(SplitLines, CutsTextOfMoreThanAMebibyteAndReportsIt) {
  const std::string printed(3 << 20, 'x');
  const TextLines text = SplitLines(printed, "efsmi");
  ASSERT_EQ(text.notes.size(), 2u);
  EXPECT_EQ(text.notes[0], "efsmi printed more than 1 MiB; the rest was left out.");
  EXPECT_THAT(text.notes[1], HasSubstr("1 line of more than 2048 bytes"));
}

TEST(SplitLines, CutsAfter4096LinesAndReportsIt) {
  const std::string printed(10000, '\n');
  const TextLines text = SplitLines(printed, "efsmi");
  EXPECT_EQ(text.lines.size(), kMaxTextLines);
  EXPECT_THAT(text.notes, ElementsAre("efsmi printed more than 4096 lines; the rest was left out."));
}

TEST(SplitLines, LeavesAnEmptyLineWhereALongOneStood) {
  const std::string printed = "a\n" + std::string(10000, '|') + "\nb\n";
  const TextLines text = SplitLines(printed, "efsmi");
  EXPECT_THAT(text.lines, ElementsAre("a", "", "b"));
  EXPECT_THAT(text.notes, ElementsAre("efsmi printed 1 line of more than 2048 bytes, left out."));
}

TEST(BoxedRow, GivesTheCellsBetweenBars) {
  const auto row = ReadBoxedRow("| 0      S60       | 33.6.2  | 00:01:00.0  Disable |");
  ASSERT_TRUE(row);
  EXPECT_THAT(row->cells, ElementsAre("0      S60", "33.6.2", "00:01:00.0  Disable"));
  EXPECT_TRUE(row->closed);
}

TEST(BoxedRow, TakesStarsAsTheOuterBorder) {
  const auto row = ReadBoxedRow("  * 30C  Sleep 48.0W  300W | 32G  Disable|  0.0% W28 *");
  ASSERT_TRUE(row);
  EXPECT_THAT(row->cells, ElementsAre("30C  Sleep 48.0W  300W", "32G  Disable", "0.0% W28"));
  EXPECT_TRUE(row->closed);
}

TEST(BoxedRow, LeavesOutTheCellThatIsCutOff) {
  const auto row = ReadBoxedRow("| 42 C   Sleep    103W  300W | 429");
  ASSERT_TRUE(row);
  EXPECT_THAT(row->cells, ElementsAre("42 C   Sleep    103W  300W"));
  EXPECT_FALSE(row->closed);
}

TEST(BoxedRow, IsNeitherARulingNorPlainText) {
  for (const char* line :
       {"", "   ", "+-----+", "|=====|", "*-----*", "+2024-12-06, 11:33:56 CST---+", "plain | text"}) {
    EXPECT_FALSE(ReadBoxedRow(line)) << line;
  }
  EXPECT_TRUE(IsRuling("+=====+===+"));
  EXPECT_TRUE(IsRuling("|-----|---|"));
  EXPECT_FALSE(IsRuling("| - |"));
  EXPECT_FALSE(IsRuling(""));
}

TEST(Words, AreSeparatedByBlanks) {
  EXPECT_THAT(Words("  a\tbc   d "), ElementsAre("a", "bc", "d"));
  EXPECT_THAT(Words("   "), IsEmpty());
}

TEST(AbsentMark, IsWhatToolsPrintForUnknown) {
  for (const char* text : {"", " ", "-", "--", "N/A", "n/a", "NA", " NA "}) EXPECT_TRUE(IsAbsentMark(text)) << text;
  for (const char* text : {"0", "NAN", "nan", "UNKNOWN", "---"}) EXPECT_FALSE(IsAbsentMark(text)) << text;
}

TEST(Whole, StopsAtItsLargest) {
  EXPECT_EQ(Whole("007", 7), 7);
  EXPECT_EQ(Whole("8", 7), std::nullopt);
  for (const char* text : {"", "-1", "1.0", "0x1", "9999999999999999999", "a"}) {
    EXPECT_EQ(Whole(text, INT64_MAX), std::nullopt) << text;
  }
}

TEST(Celsius, TakesEverySpellingThatToolsUse) {
  for (const char* text : {"30C", "30 C", "30℃", "30°C", "30", "30.0C", "30?"}) EXPECT_EQ(Celsius(text), 30.0) << text;
  for (const char* text : {"-5C", "300C", "30W", "30F", "C", "", "99999999999999999999C", "nan C"}) {
    EXPECT_EQ(Celsius(text), std::nullopt) << text;
  }
}

TEST(Watts, TakesABareNumberOrW) {
  EXPECT_EQ(Watts("48.0W"), 48.0);
  EXPECT_EQ(Watts("105W"), 105.0);
  EXPECT_EQ(Watts("105 W"), 105.0);
  EXPECT_EQ(Watts("91.3"), 91.3);
  for (const char* text : {"-1W", "105mW", "infW", "1e3W", "100001W", "W", "N/A"}) {
    EXPECT_EQ(Watts(text), std::nullopt) << text;
  }
}

TEST(Percent, IsWithin0And100) {
  EXPECT_EQ(Percent("0.0%"), 0.0);
  EXPECT_EQ(Percent("0%"), 0.0);
  EXPECT_EQ(Percent("84.1"), 84.1);
  EXPECT_EQ(Percent("100%"), 100.0);
  for (const char* text : {"100.1%", "101", "-1%", "4000%", "5%%", ""}) EXPECT_EQ(Percent(text), std::nullopt) << text;
}

TEST(Bytes, CountsInPowersOfTwo) {
  EXPECT_EQ(Bytes("32G", "MiB"), 34359738368u);
  EXPECT_EQ(Bytes("49120MiB", "MiB"), 51506053120u);
  EXPECT_EQ(Bytes("65536", "MiB"), 68719476736u);
  EXPECT_EQ(Bytes("1.5 GiB", "MiB"), 1610612736u);
  EXPECT_EQ(Bytes("0", "MiB"), 0u);
  for (const char* text : {"-1MiB", "32Q", "99999999999999999999MiB", "999999999999999G", "MiB", "", "1e3MiB"}) {
    EXPECT_EQ(Bytes(text, "MiB"), std::nullopt) << text;
  }
  EXPECT_EQ(Bytes("1", "nonsense"), std::nullopt);
}

TEST(PlainText, LetsNamesThrough) {
  EXPECT_EQ(PlainText(" Enflame S60G "), "Enflame S60G");
  EXPECT_EQ(PlainText("燧原 S60"), "燧原 S60");
  EXPECT_EQ(PlainText(std::string(kMaxValueBytes, 'x')), std::string(kMaxValueBytes, 'x'));
}

TEST(PlainText, RefusesWhatATerminalWouldActOn) {
  EXPECT_EQ(PlainText("\x1b[31mS60\x1b[0m"), std::nullopt);
  EXPECT_EQ(PlainText("S60\0X"sv), std::nullopt);
  EXPECT_EQ(PlainText("S60\x7f"), std::nullopt);
  EXPECT_EQ(PlainText("S60\xc2\x9b"), std::nullopt) << "an 8-bit escape sequence";
  EXPECT_EQ(PlainText("S60\xe2\x80\xae"), std::nullopt) << "right-to-left override";
  EXPECT_EQ(PlainText("S\xe2\x80\x8b"
                      "60"),
            std::nullopt)
      << "zero-width space";
  EXPECT_EQ(PlainText("S\t60"), std::nullopt);
}

TEST(PlainText, RefusesInvalidUtf8AndWhatIsTooLong) {
  for (const std::string& text :
       {"\xff"s, "\xc0\x80"s, "\xe0\x80\xaf"s, "\xed\xa0\x80"s, "\xf4\x90\x80\x80"s, "\xe2\x84"s, "a\x80"s,
        "\xf8\x88\x80\x80\x80"s, std::string(kMaxValueBytes + 1, 'x'), ""s, "N/A"s}) {
    EXPECT_EQ(PlainText(text), std::nullopt);
  }
}

TEST(Version, BeginsWithADigitAndHoldsNothingOdd) {
  EXPECT_EQ(Version("V1.20.0"), "1.20.0");
  EXPECT_EQ(Version("2.4.20230829"), "2.4.20230829");
  EXPECT_EQ(Version("26.0.rc2"), "26.0.rc2");
  for (const char* text : {"", "V", "Ver", "$(reboot)", "1.2;rm", "1.2\x1b[0m"}) {
    EXPECT_EQ(Version(text), std::nullopt) << text;
  }
}

TEST(Quoted, IsHarmlessWhateverItQuotes) {
  EXPECT_EQ(Quoted("sh: 1: efsmi: not found"), "\"sh: 1: efsmi: not found\"");
  EXPECT_EQ(Quoted("错误"), "\"错误\"");
  EXPECT_EQ(Quoted("a\x1b[2J\xff\0b"sv), "\"a?[2J??b\"");
  EXPECT_EQ(Quoted(std::string(1000, 'x')), std::string("\"") + std::string(80, 'x') + "…\"");
}

}  // namespace
}  // namespace fulldeck::device
