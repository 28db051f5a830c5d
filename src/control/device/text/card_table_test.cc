#include "device/text/card_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace fulldeck::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::array<Title, 6> kKnown = {{
    {"Dev", Field::kNumber, Extent::kWord},
    {"Name", Field::kModel, Extent::kRest},
    {"Bus", Field::kPciAddress, Extent::kWord},
    {"Temp", Field::kTemperature, Extent::kQuantity},
    {"State", Field::kState, Extent::kWord},
    {"Pid", Field::kProcessId, Extent::kWord},
}};

constexpr std::string_view kTitles = "| Dev Name | Bus |\n| Temp | State |\n|======|\n";

CardTable Read(const std::string& text) {
  const TextLines lines = SplitLines(text, "tool");
  return ReadCardTable(lines, kKnown, "tool");
}

TEST(CardTable, PutsTheTwoLinesOfACardTogether) {
  const CardTable table = Read(std::string(kTitles) +
                               "| 0 T20 | 3d:00.0 |\n| 30C | Sleep |\n|----|\n"
                               "| 1 T20 | 3e:00.0 |\n| 31C | Active |\n|----|\n");
  ASSERT_EQ(table.cards.size(), 2u);
  EXPECT_EQ(table.cards[0].number, 0);
  EXPECT_EQ(table.cards[0].card.pci_address, "0000:3d:00.0");
  EXPECT_EQ(table.cards[0].card.temperature_celsius, 30.0);
  EXPECT_EQ(table.cards[1].card.state, "Active");
  EXPECT_THAT(table.cards[0].card.notes, IsEmpty());
  EXPECT_THAT(table.notes, IsEmpty());
  EXPECT_TRUE(table.has_both_titles);
}

TEST(CardTable, WorksWithoutRulingsBetweenTheCards) {
  const CardTable table =
      Read(std::string(kTitles) + "| 0 T20 | 3d:00.0 |\n| 30C | Sleep |\n| 1 T20 | 3e:00.0 |\n| 31C | Active |\n");
  ASSERT_EQ(table.cards.size(), 2u);
  EXPECT_EQ(table.cards[1].card.temperature_celsius, 31.0);
}

TEST(CardTable, DoesNotGiveTheSecondLineOfOneCardToAnother) {
  const CardTable table = Read(std::string(kTitles) + "| 0 T20 | 3d:00.0 |\n|----|\n| 31C | Active |\n");
  ASSERT_EQ(table.cards.size(), 2u);
  EXPECT_EQ(table.cards[0].card.temperature_celsius, std::nullopt);
  EXPECT_THAT(table.cards[0].card.notes,
              ElementsAre("tool: the line with Temp, State could not be read for this card."));
  EXPECT_EQ(table.cards[1].number, std::nullopt);
  EXPECT_THAT(table.cards[1].card.notes,
              ElementsAre("tool: the line with Dev, Name, Bus could not be read for this card."));
}

TEST(CardTable, ReadsABrokenValueAsAbsentWhenTheLineIsClear) {
  const CardTable table = Read(std::string(kTitles) + "| 0 T20 | nonsense |\n| 30C | Sleep |\n");
  ASSERT_EQ(table.cards.size(), 1u);
  EXPECT_EQ(table.cards[0].number, 0);
  EXPECT_EQ(table.cards[0].card.pci_address, std::nullopt);
  EXPECT_EQ(table.cards[0].card.temperature_celsius, 30.0);
  EXPECT_THAT(table.cards[0].card.notes, ElementsAre("tool: could not read Bus."));
}

TEST(CardTable, GuessesNothingWhenATitleLineIsMissing) {
  const CardTable table = Read("| Dev Name | Bus |\n| 0 T20 | 3d:00.0 |\n| 30C | Sleep |\n");
  ASSERT_EQ(table.cards.size(), 1u);
  EXPECT_EQ(table.cards[0].number, 0);
  EXPECT_EQ(table.cards[0].card.temperature_celsius, std::nullopt);
  EXPECT_THAT(table.notes, ElementsAre("tool: 1 line of its table could not be read: it fits no title line."));
  EXPECT_FALSE(table.has_both_titles);
}

TEST(CardTable, KeepsThePciAddressOfALineWithoutTitles) {
  const CardTable table = Read("| Temp | State |\n| 0 T20 | 3d:00.0 |\n| 30C | Sleep |\n| 1 T20 | 3e:00.0 |\n");
  ASSERT_EQ(table.cards.size(), 2u);
  EXPECT_EQ(table.cards[0].card.pci_address, "0000:3d:00.0");
  EXPECT_EQ(table.cards[0].card.temperature_celsius, 30.0);
  EXPECT_EQ(table.cards[1].card.pci_address, "0000:3e:00.0");
  EXPECT_THAT(table.cards[1].card.notes, ElementsAre("tool: of this card only the PCI address could be read."));
}

TEST(CardTable, ReadsRowsByTheTitlesRightAboveThem) {
  const CardTable table =
      Read(std::string(kTitles) + "| 0 T20 | 3d:00.0 |\n| 30C | Sleep |\n| Dev | Pid |\n| 0 | 77 |\n");
  EXPECT_EQ(table.cards.size(), 1u);
  ASSERT_EQ(table.processes.size(), 1u);
  EXPECT_EQ(table.processes[0].number, 0);
  EXPECT_EQ(table.processes[0].process_id, 77);
}

TEST(CardTable, StopsAt256Cards) {
  std::string text(kTitles);
  for (int i = 0; i < 300; ++i) text += "| " + std::to_string(i) + " T20 | 3d:00.0 |\n| 30C | Sleep |\n";
  const CardTable table = Read(text);
  EXPECT_EQ(table.cards.size(), kMaxCards);
  EXPECT_THAT(table.notes, ElementsAre("tool lists more than 256 cards; the rest was left out."));
}

TEST(NoTableNote, QuotesTheFirstLineThatIsNotEmpty) {
  EXPECT_EQ(NoTableNote(SplitLines("\n-----\nsh: not found\n", "tool"), "tool"),
            "tool printed no card table; it began: \"sh: not found\"");
  EXPECT_EQ(NoTableNote(SplitLines("\n\n", "tool"), "tool"), "tool printed nothing.");
}

TEST(KeepIdentifiedCards, LeavesARepeatedNumberToTheFirst) {
  SourceReading reading;
  reading.cards.resize(2);
  reading.cards[0].index = 1;
  reading.cards[1].index = 1;
  reading.cards[1].pci_address = "0000:3d:00.0";
  KeepIdentifiedCards(reading, "tool");
  ASSERT_EQ(reading.cards.size(), 2u);
  EXPECT_EQ(reading.cards[0].index, 1);
  EXPECT_EQ(reading.cards[1].index, std::nullopt);
  EXPECT_THAT(reading.cards[1].notes,
              ElementsAre("tool gives the number 1 to more than one card; it is left to the first."));
}

TEST(KeepIdentifiedCards, LeavesOutWhatNothingIdentifies) {
  SourceReading reading;
  reading.cards.resize(3);
  reading.cards[1].index = 0;
  KeepIdentifiedCards(reading, "tool");
  EXPECT_EQ(reading.cards.size(), 1u);
  EXPECT_THAT(reading.notes,
              ElementsAre("tool: the values of 2 cards were left out: no number or address says whose."));
}

}  // namespace
}  // namespace fulldeck::device
