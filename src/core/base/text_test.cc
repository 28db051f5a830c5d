#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::base {
namespace {

using testing::ElementsAre;

TEST(Text, SplitsAndKeepsEmptyParts) {
  EXPECT_THAT(Split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
}

TEST(Text, TakesNoNumberWithAnythingBehindIt) {
  EXPECT_EQ(ParseInteger<int>("42"), 42);
  EXPECT_EQ(ParseInteger<int>("-1"), -1);
  for (const char* wrong : {"", "4 ", "4x", "0x10", "99999999999999999999"})
    EXPECT_FALSE(ParseInteger<int>(wrong)) << wrong;
}

TEST(Text, ReadsPlainDecimalsOnly) {
  EXPECT_EQ(ParseDecimal("1.5"), 1.5);
  EXPECT_EQ(ParseDecimal("84.1"), 84.1);
  EXPECT_EQ(ParseDecimal("999999999999999"), 999999999999999.0);
  for (const char* wrong :
       {"", ".", "1.", ".5", "1.2.3", "-1", "+1", "1e3", "nan", "inf", "0x10", "1,5", " 1", "1 ", "9999999999999999"}) {
    EXPECT_FALSE(ParseDecimal(wrong)) << wrong;
  }
}

TEST(Text, ReadsByteSizesInBinaryUnits) {
  EXPECT_EQ(ParseByteSize("4096"), 4096U);
  EXPECT_EQ(ParseByteSize("64MiB"), 64U << 20);
  EXPECT_EQ(ParseByteSize("1.5GiB"), 3ULL << 29);
  EXPECT_EQ(ParseByteSize("32G"), 32ULL << 30);
  for (const char* wrong : {"", "GiB", "5MB", "5 MiB", "-1", "99999999999TiB"})
    EXPECT_FALSE(ParseByteSize(wrong)) << wrong;
}

TEST(Text, WritesByteSizesAsPeopleReadThem) {
  EXPECT_EQ(FormatByteSize(0), "0 B");
  EXPECT_EQ(FormatByteSize(48ULL << 30), "48 GiB");
  EXPECT_EQ(FormatByteSize((48ULL << 30) + (300ULL << 20)), "48.3 GiB");
  EXPECT_EQ(FormatByteSize(143771ULL << 20), "140 GiB");
}

TEST(Text, SuggestsTheNearestWordAndNothingFar) {
  const std::vector<std::string> commands = {"devices", "doctor", "help"};
  EXPECT_EQ(ClosestMatch("devcies", commands), "devices");
  EXPECT_EQ(ClosestMatch("doc", commands), "doctor");
  EXPECT_FALSE(ClosestMatch("launch", commands));
}

TEST(Text, KeepsEverythingThatCouldSteerATerminalAway) {
  EXPECT_EQ(Printable("S60 \x1b[31mred\x07"), "S60 ?[31mred?");
  EXPECT_EQ(Printable("34℃ 燧原"), "34℃ 燧原");
  EXPECT_EQ(Printable("\xc3(\xff\xe2\x82"), "?(???");
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a?b")
      << "a right-to-left override can hide what stands behind it";
}

}  // namespace
}  // namespace fulldeck::base
