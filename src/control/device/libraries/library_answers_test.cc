#include "device/libraries/library_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace fulldeck::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AnswerCheckTest : public ::testing::Test {
 protected:
  std::optional<std::string> Text(const char* text) { return check.Text("name", text, std::strlen(text) + 1); }

  std::vector<std::string> notes;
  AnswerCheck check{"XYML", &notes};
};

TEST_F(AnswerCheckTest, TakesATextWithoutTheSpacesRoundIt) {
  EXPECT_EQ(Text("  T20 card "), "T20 card");
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AnswerCheckTest, TakesAnEmptyTextOrNotAvailableAsAbsent) {
  for (const char* text : {"", "   ", "N/A"}) EXPECT_EQ(Text(text), std::nullopt) << text;
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AnswerCheckTest, RefusesATextWithoutAnEndAndReportsIt) {
  const char full[4] = {'a', 'b', 'c', 'd'};
  EXPECT_EQ(check.Text("name", full, sizeof full), std::nullopt);
  EXPECT_THAT(notes, ElementsAre("XYML gives a name that has no end; it is left out."));
}

TEST_F(AnswerCheckTest, RefusesControlCharactersAndBytesThatAreNotAscii) {
  for (const char* text : {"T\x1b[2J20", "line\nbreak", "\xff\xfe", "caf\xc3\xa9"}) {
    EXPECT_EQ(Text(text), std::nullopt);
  }
  EXPECT_THAT(notes, ElementsAre("XYML gives a name with unprintable characters; it is left out."));
}

TEST_F(AnswerCheckTest, KeepsNumbersAtTheEdgeOfWhatCanBe) {
  EXPECT_EQ(check.UtilizationPercent(0), 0);
  EXPECT_EQ(check.UtilizationPercent(100), 100);
  EXPECT_EQ(check.TemperatureCelsius(-60), -60);
  EXPECT_EQ(check.TemperatureCelsius(200), 200);
  EXPECT_EQ(check.PowerWatts(0), 0);
  EXPECT_EQ(check.PowerWatts(5000), 5000);
  EXPECT_EQ(check.ProcessId(1), 1);
  EXPECT_EQ(check.ProcessId(4194304), 4194304);
  EXPECT_TRUE(check.CardCount(256));
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AnswerCheckTest, LeavesOutNumbersThatCannotBe) {
  for (const double value : {-0.5, 100.5, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(check.UtilizationPercent(value), std::nullopt) << value;
  }
  for (const double value : {-61.0, 201.0, std::nan("")}) EXPECT_EQ(check.TemperatureCelsius(value), std::nullopt);
  for (const double value : {-1.0, 5001.0, std::nan("")}) {
    EXPECT_EQ(check.PowerWatts(value), std::nullopt) << value;
    EXPECT_EQ(check.PowerLimitWatts(value), std::nullopt) << value;
  }
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{4294967295}}) {
    EXPECT_EQ(check.ProcessId(value), std::nullopt) << value;
  }
  EXPECT_FALSE(check.CardCount(257));
  EXPECT_EQ(notes.size(), 4u + 3u + 6u + 3u + 1u);
  EXPECT_EQ(notes[1], "XYML reports a utilisation of 100.5 %, which cannot be; it is left out.");
}

TEST_F(AnswerCheckTest, TakesAPowerLimitOfNothingAsNotKnown) {
  EXPECT_EQ(check.PowerLimitWatts(0), std::nullopt);
  EXPECT_EQ(check.PowerLimitWatts(300), 300);
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AnswerCheckTest, WritesAPciAddressAsSysfsDoes) {
  EXPECT_EQ(check.PciAddress(0, 0x3d, 0, 0), "0000:3d:00.0");
  EXPECT_EQ(check.PciAddress(1, 0xce, 0x1f, 7), "0001:ce:1f.7");
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AnswerCheckTest, LeavesOutAPciAddressThatCannotBe) {
  EXPECT_EQ(check.PciAddress(0, 256, 0, 0), std::nullopt);
  EXPECT_EQ(check.PciAddress(0, 0, 32, 0), std::nullopt);
  EXPECT_EQ(check.PciAddress(0, 0, 0, 8), std::nullopt);
  EXPECT_EQ(notes.size(), 1u);
}

TEST_F(AnswerCheckTest, KeepsTheTotalWhenMoreIsUsedThanThereIs) {
  CardReading card;
  check.Memory(1000, 1001, &card);
  EXPECT_EQ(card.memory_total_bytes, 1000u);
  EXPECT_EQ(card.memory_used_bytes, std::nullopt);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("more memory in use (1001 bytes) than there is (1000 bytes)")));
}

TEST_F(AnswerCheckTest, KnowsNoMemoryOfACardThatReportsNone) {
  CardReading card;
  check.Memory(0, 0, &card);
  EXPECT_EQ(card.memory_total_bytes, std::nullopt);
  EXPECT_EQ(card.memory_used_bytes, std::nullopt);
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AnswerCheckTest, ReportsTheSameThingOnce) {
  check.UtilizationPercent(250);
  check.UtilizationPercent(250);
  EXPECT_EQ(notes.size(), 1u);
}

TEST(DescribeCode, PutsTheNumberBehindTheText) {
  constexpr CodeMeaning kMeanings[] = {{9, "the driver is not loaded"}};
  EXPECT_EQ(DescribeCode(kMeanings, 9), "the driver is not loaded (code 9)");
}

TEST(DescribeCode, FallsBackToTheTextOfTheLibrary) {
  EXPECT_EQ(DescribeCode({}, 77, "no coffee"), "code 77, which it calls 'no coffee'");
  EXPECT_EQ(DescribeCode({}, 77, "no\tcoffee"), "code 77, whose meaning is not known");
  EXPECT_EQ(DescribeCode({}, 77), "code 77, whose meaning is not known");
}

}  // namespace
}  // namespace fulldeck::device
