#include "device/text/titled_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace fulldeck::device {
namespace {

using ::testing::ElementsAre;

constexpr std::array<Title, 9> kKnown = {{
    {"Dev", Field::kNumber, Extent::kWord},
    {"Name", Field::kModel, Extent::kRest},
    {"Ver", Field::kIgnored, Extent::kWord},
    {"Boot Ver", Field::kFirmware, Extent::kRest},
    {"Temp", Field::kTemperature, Extent::kQuantity},
    {"State", Field::kState, Extent::kWord},
    {"Power", Field::kPowerAndLimit, Extent::kPair},
    {"Memory", Field::kHbmUse, Extent::kPair},
    {"Util", Field::kUtilization, Extent::kQuantity},
}};

TitleLine Titles(std::string_view line) {
  const auto titles = ReadTitleLine(*ReadBoxedRow(line), kKnown);
  EXPECT_TRUE(titles) << line;
  return titles.value_or(TitleLine{});
}

RowReading Read(std::string_view titles, std::string_view row) {
  return ReadRow(Titles(titles), *ReadBoxedRow(row));
}

TEST(TitleLine, PrefersTheLongestTitleAndIgnoresCase) {
  const TitleLine titles = Titles("| DEV  name | boot VER |");
  ASSERT_EQ(titles.size(), 2u);
  EXPECT_EQ(titles[0][0].field, Field::kNumber);
  EXPECT_EQ(titles[0][1].field, Field::kModel);
  ASSERT_EQ(titles[1].size(), 1u);
  EXPECT_EQ(titles[1][0].field, Field::kFirmware);
  EXPECT_EQ(WantedTitles(titles), "Dev, Name, Boot Ver");
  EXPECT_TRUE(HasTitle(titles, Field::kModel));
  EXPECT_FALSE(HasTitle(titles, Field::kUtilization));
}

TEST(TitleLine, IsNotARowOfValues) {
  for (const char* line :
       {"| 0   S60 | 33.6.2 |", "| one known: Temp | and many other words here |", "| Temp |", "| |"}) {
    EXPECT_FALSE(ReadTitleLine(*ReadBoxedRow(line), kKnown)) << line;
  }
}

TEST(TitledRow, ReadsValuesByTitleWhereverTheColumnStands) {
  const RowReading one = Read("| Dev Name | Temp State |", "| 3 Enflame S60G | 39 C Sleep |");
  const RowReading other = Read("| State Temp | Dev Name |", "| Sleep 39C | 3   Enflame S60G |");
  for (const RowReading& row : {one, other}) {
    EXPECT_EQ(row.number, 3);
    EXPECT_EQ(row.card.model, "Enflame S60G");
    EXPECT_EQ(row.card.temperature_celsius, 39.0);
    EXPECT_EQ(row.card.state, "Sleep");
    EXPECT_EQ(row.misfits(), 0);
    EXPECT_EQ(row.understood, 4);
  }
}

TEST(TitledRow, TakesAPairHoweverItIsWritten) {
  for (const char* row :
       {"| 68W / 300W | 5% |", "| 68W  300W | 5% |", "| 68W/300W | 5% |", "| 68W/ 300W | 5% |", "| 68W /300W | 5% |"}) {
    const RowReading reading = Read("| Power | Util |", row);
    EXPECT_EQ(reading.card.power_watts, 68.0) << row;
    EXPECT_EQ(reading.card.power_limit_watts, 300.0) << row;
    EXPECT_EQ(reading.card.utilization_percent, 5.0) << row;
    EXPECT_EQ(reading.misfits(), 0) << row;
  }
}

TEST(TitledRow, TakesTwoPairsInOneCell) {
  const RowReading reading = Read("| Util Power Memory |", "| 7  0 / 0  29096/ 32768 |");
  EXPECT_EQ(reading.card.utilization_percent, 7.0);
  EXPECT_EQ(reading.card.power_watts, 0.0);
  EXPECT_EQ(reading.card.memory_used_bytes, 29096ull << 20);
  EXPECT_EQ(reading.card.memory_total_bytes, 32768ull << 20);
  EXPECT_EQ(reading.misfits(), 0);
}

TEST(TitledRow, LeavesAbsentWhatTheToolDoesNotKnow) {
  for (const char* row : {"| N/A | - |", "| N/A / N/A | NA |", "| - | N/A |"}) {
    const RowReading reading = Read("| Power | Util |", row);
    EXPECT_EQ(reading.card.power_watts, std::nullopt) << row;
    EXPECT_EQ(reading.card.power_limit_watts, std::nullopt) << row;
    EXPECT_EQ(reading.card.utilization_percent, std::nullopt) << row;
    EXPECT_EQ(reading.misfits(), 0) << row;
  }
}

TEST(TitledRow, ReportsWhichValuesMakeNoSense) {
  const RowReading reading = Read("| Dev Name | Temp State | Util |", "| 1 S60 | -5C 17 | 400% |");
  EXPECT_THAT(reading.unreadable, ElementsAre("Temp", "State", "Util"));
  EXPECT_EQ(reading.number, 1);
  EXPECT_EQ(reading.card.temperature_celsius, std::nullopt);
}

TEST(TitledRow, RefusesMoreMemoryUsedThanThereIs) {
  const RowReading reading = Read("| Memory | Util |", "| 70000 / 65536 | 5% |");
  EXPECT_THAT(reading.unreadable, ElementsAre("Memory"));
  EXPECT_EQ(reading.card.memory_total_bytes, std::nullopt);
}

TEST(TitledRow, CountsWordsWithoutATitleAsAMisfit) {
  EXPECT_EQ(Read("| Dev | Util |", "| 1 | 5% extra |").misfits(), 1);
  EXPECT_EQ(Read("| Dev | Util |", "| 1 | 5% | more |").misfits(), 1);
  EXPECT_EQ(Read("| Dev | Util |", "| 1 |").misfits(), 1);
}

TEST(TitledRow, DoesNotBlameALineThatIsCutOff) {
  const RowReading reading = Read("| Dev Name | Temp State | Util |", "| 1 S60 | 39 C Sleep | 9");
  EXPECT_TRUE(reading.cut);
  EXPECT_EQ(reading.misfits(), 0);
  EXPECT_EQ(reading.card.temperature_celsius, 39.0);
  EXPECT_EQ(reading.card.utilization_percent, std::nullopt) << "the 9 may be the beginning of 97";
}

TEST(FillAbsent, NeverOverwrites) {
  CardReading into;
  into.model = "S60";
  CardReading from;
  from.model = "other";
  from.power_watts = 5;
  FillAbsent(from, into);
  EXPECT_EQ(into.model, "S60");
  EXPECT_EQ(into.power_watts, 5.0);
  EXPECT_EQ(into.serial, std::nullopt);
}

}  // namespace
}  // namespace fulldeck::device
