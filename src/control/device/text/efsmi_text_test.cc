#include "device/text/efsmi_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fixture_text.h"
#include "reading_invariants.h"

namespace fulldeck::device {
namespace {

using fulldeck::testing::BrokenInvariant;
using fulldeck::testing::ContradictionOf;
using fulldeck::testing::FixtureText;
using fulldeck::testing::WithoutLines;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = 1 << 20;

SourceReading Main(const std::string& name) {
  SourceReading reading = ParseEfsmi(FixtureText("texts/efsmi/" + name + ".txt"));
  EXPECT_EQ(BrokenInvariant(reading), "") << name;
  return reading;
}

SourceReading Dmon(const std::string& name) {
  return ParseEfsmiDmon(FixtureText("texts/efsmi-dmon/" + name + ".txt"));
}

std::vector<std::string> Addresses(const SourceReading& reading) {
  std::vector<std::string> addresses;
  for (const CardReading& card : reading.cards) addresses.push_back(card.pci_address.value_or("none"));
  return addresses;
}

TEST(Efsmi, ReadsTheEightT20sOf1_20) {
  const SourceReading reading = Main("t20-1.20.0");
  EXPECT_EQ(reading.source, "efsmi 1.20.0");
  EXPECT_EQ(reading.driver_version, "2.4.20230829");
  EXPECT_THAT(reading.notes, IsEmpty());
  ASSERT_EQ(reading.cards.size(), 8u);

  const double watts[] = {211.3, 208.9, 48.0, 47.5, 48.2, 46.9, 47.0, 48.8};
  const double celsius[] = {44, 45, 30, 31, 29, 30, 28, 30};
  const double busy[] = {97.4, 96.8, 0, 0, 0, 0, 0, 0};
  const char* serials[] = {"W280010000731", "W280010010732", "W280010020733", "W280010030734",
                           "W280010040735", "W280010050736", "W280010060737", "W280010070738"};
  for (int i = 0; i < 8; ++i) {
    const CardReading& card = reading.cards[static_cast<std::size_t>(i)];
    EXPECT_EQ(card.index, i);
    EXPECT_EQ(card.model, "T20");
    EXPECT_EQ(card.firmware, "10.19.3");
    EXPECT_EQ(card.memory_total_bytes, 32ull << 30);
    EXPECT_EQ(card.memory_used_bytes, std::nullopt);
    EXPECT_EQ(card.power_watts, watts[i]);
    EXPECT_EQ(card.power_limit_watts, 300.0);
    EXPECT_EQ(card.temperature_celsius, celsius[i]);
    EXPECT_EQ(card.utilization_percent, busy[i]);
    EXPECT_EQ(card.state, busy[i] > 0 ? "Active" : "Sleep");
    EXPECT_EQ(card.uuid, serials[i]);
    EXPECT_EQ(card.serial, serials[i]) << "T20's table has no SN: what it titles UUID is the card's identity";
    EXPECT_EQ(card.processes, std::nullopt) << "efsmi does not tell";
    EXPECT_THAT(card.notes, IsEmpty());
  }
  EXPECT_THAT(Addresses(reading), ElementsAre("0000:3d:00.0", "0000:3e:00.0", "0000:40:00.0", "0000:41:00.0",
                                              "0000:b1:00.0", "0000:b2:00.0", "0000:b4:00.0", "0000:b5:00.0"));
}

TEST(Efsmi, ReadsTheEightS60sOf1_2_0) {
  const SourceReading reading = Main("s60-1.2.0.301");
  EXPECT_EQ(reading.source, "efsmi 1.2.0.301");
  EXPECT_EQ(reading.driver_version, "1.2.0.301");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    const CardReading& card = reading.cards[static_cast<std::size_t>(i)];
    const bool active = i == 1 || i == 5;
    EXPECT_EQ(card.index, i);
    EXPECT_EQ(card.model, "S60");
    EXPECT_EQ(card.firmware, i == 0 ? "33.6.2" : "33.6.5");
    EXPECT_EQ(card.memory_total_bytes, (i == 0 ? 49120 : 42976) * kMiB);
    EXPECT_EQ(card.temperature_celsius, 39.0 + i);
    EXPECT_EQ(card.power_watts, (active ? 128.0 : 100.0) + i);
    EXPECT_EQ(card.power_limit_watts, 300.0);
    EXPECT_EQ(card.utilization_percent, active ? 73.5 : 0.0);
    EXPECT_EQ(card.state, active ? "Active" : "Sleep");
    EXPECT_EQ(card.serial, "A0736K05100" + std::to_string(15 + i));
    EXPECT_EQ(card.uuid, std::nullopt);
    EXPECT_THAT(card.notes, IsEmpty());
  }
  EXPECT_THAT(Addresses(reading), ElementsAre("0000:01:00.0", "0000:09:00.0", "0000:17:00.0", "0000:2e:00.0",
                                              "0000:81:00.0", "0000:89:00.0", "0000:97:00.0", "0000:ae:00.0"));
}

TEST(Efsmi, ReadsTheSameWithWindowsLineEnds) {
  const SourceReading reading = Main("s60-1.2.0.301-crlf");
  ASSERT_EQ(reading.cards.size(), 2u);
  EXPECT_EQ(reading.cards[1].serial, "A0736K0510016");
  EXPECT_EQ(reading.cards[1].power_watts, 129.0);
}

TEST(Efsmi, ReadsTheS60GsOf1_6_3WhosePowerIsNotKnown) {
  const SourceReading reading = Main("s60g-1.6.3.12");
  EXPECT_EQ(reading.source, "efsmi 1.6.3.12");
  EXPECT_EQ(reading.driver_version, "1.6.3.12");
  ASSERT_EQ(reading.cards.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const CardReading& card = reading.cards[static_cast<std::size_t>(i)];
    EXPECT_EQ(card.index, i);
    EXPECT_EQ(card.model, "S60G") << "not Enflame S60G";
    EXPECT_EQ(card.firmware, "31.5.3");
    EXPECT_EQ(card.pci_address, "0000:2e:00." + std::to_string(i));
    EXPECT_EQ(card.temperature_celsius, 34.0 + i);
    EXPECT_EQ(card.state, "LP0");
    EXPECT_EQ(card.power_watts, std::nullopt);
    EXPECT_EQ(card.power_limit_watts, std::nullopt);
    EXPECT_EQ(card.memory_total_bytes, 23552 * kMiB);
    EXPECT_EQ(card.utilization_percent, 0.0);
    EXPECT_EQ(card.serial, "A018K30520777") << "functions of one card share it";
    EXPECT_THAT(card.notes, IsEmpty());
  }
}

TEST(Efsmi, ReadsTheEightL300sOf1_7_2) {
  const SourceReading reading = Main("l300-1.7.2.14");
  EXPECT_EQ(reading.source, "efsmi 1.7.2.14");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    const CardReading& card = reading.cards[static_cast<std::size_t>(i)];
    EXPECT_EQ(card.index, i);
    EXPECT_EQ(card.model, "L300");
    EXPECT_EQ(card.firmware, "40.2.8.3") << "under Boot FW VER";
    EXPECT_EQ(card.temperature_celsius, 35.0 + i);
    EXPECT_EQ(card.power_watts, i == 6 ? 287.0 : 68.0 + i);
    EXPECT_EQ(card.power_limit_watts, 300.0);
    EXPECT_EQ(card.memory_total_bytes, 147456 * kMiB);
    EXPECT_EQ(card.utilization_percent, i == 6 ? 88.0 : 0.0);
    EXPECT_EQ(card.state, i == 6 ? "LP0" : "LP1");
    EXPECT_EQ(card.serial, "A098Q50610" + std::to_string(401 + i));
  }
}

TEST(Efsmi, ReportsThatTheContainerHasNoDeviceNodes) {
  const SourceReading reading = Main("no-devices");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("probably has no device nodes")));
  EXPECT_THAT(reading.notes[0], HasSubstr("/dev/gcu"));
}

TEST(Efsmi, KeepsTheAddressesWhenEverySecondLineIsLost) {
  const SourceReading reading = Main("t20-1.20.0-even-lines");
  EXPECT_EQ(reading.source, "efsmi 1.20.0");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (const CardReading& card : reading.cards) {
    EXPECT_EQ(card.power_watts, std::nullopt);
    EXPECT_THAT(card.notes, ElementsAre("efsmi: of this card only the PCI address could be read."));
  }
  EXPECT_EQ(reading.cards[7].pci_address, "0000:b5:00.0");
  EXPECT_EQ(Main("s60-1.2.0.301-even-lines").cards.size(), 8u);
}

TEST(Efsmi, ReportsThatTheTableCouldNotBeReadWhenTheCardNamesAreLost) {
  for (const char* name : {"t20-1.20.0-odd-lines", "s60-1.2.0.301-odd-lines"}) {
    const SourceReading reading = Main(name);
    EXPECT_THAT(reading.cards, IsEmpty()) << name;
    EXPECT_THAT(reading.notes, ElementsAre("efsmi: 8 lines of its table could not be read: they fit no title line."));
  }
}

TEST(Efsmi, NeverGivesOneCardTheValuesOfItsNeighbor) {
  const SourceReading whole = Main("l300-1.7.2.14");
  for (const char* name : {"l300-1.7.2.14-odd-lines", "l300-1.7.2.14-even-lines"}) {
    const SourceReading reading = Main(name);
    ASSERT_EQ(reading.cards.size(), 4u) << name;
    for (const CardReading& card : reading.cards) {
      EXPECT_THAT(card.notes, ::testing::SizeIs(1));
      bool found = false;
      for (const CardReading& right : whole.cards) {
        if (right.pci_address != card.pci_address) continue;
        found = true;
        EXPECT_TRUE(!card.index || card.index == right.index);
        EXPECT_TRUE(!card.serial || card.serial == right.serial);
        EXPECT_TRUE(!card.power_watts || card.power_watts == right.power_watts);
      }
      EXPECT_TRUE(found);
    }
    EXPECT_THAT(reading.notes, Contains(HasSubstr("could not be read")));
  }
}

TEST(Efsmi, YieldsLessAndNothingElseWithoutAnyTwoOfItsLines) {
  for (const char* name : {"t20-1.20.0", "s60-1.2.0.301-crlf", "s60g-1.6.3.12", "l300-1.7.2.14"}) {
    const std::string text = FixtureText("texts/efsmi/" + std::string(name) + ".txt");
    const SourceReading whole = ParseEfsmi(text);
    const int lines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    for (int first = 0; first < lines; ++first) {
      for (int second = first; second < lines; ++second) {
        const SourceReading damaged = ParseEfsmi(WithoutLines(text, first, second));
        ASSERT_EQ(BrokenInvariant(damaged), "") << name << " without lines " << first << " and " << second;
        ASSERT_EQ(ContradictionOf(whole, damaged), "") << name << " without lines " << first << " and " << second;
      }
    }
  }
}

TEST(Efsmi, YieldsLessAndNothingElseWhereverItIsCutOff) {
  for (const char* name : {"t20-1.20.0", "s60-1.2.0.301-crlf", "s60g-1.6.3.12", "l300-1.7.2.14"}) {
    const std::string text = FixtureText("texts/efsmi/" + std::string(name) + ".txt");
    const SourceReading whole = ParseEfsmi(text);
    for (std::size_t length = 0; length < text.size(); ++length) {
      const SourceReading damaged = ParseEfsmi(std::string_view(text).substr(0, length));
      ASSERT_EQ(BrokenInvariant(damaged), "") << name << " cut after " << length << " bytes";
      ASSERT_EQ(ContradictionOf(whole, damaged), "") << name << " cut after " << length << " bytes";
    }
  }
}

TEST(Efsmi, LeavesOutAValueThatIsCutInTheMiddle) {
  const SourceReading reading = Main("truncated-in-mid-line");
  ASSERT_EQ(reading.cards.size(), 4u);
  EXPECT_EQ(reading.cards[2].memory_total_bytes, 42976 * kMiB);
  const CardReading& last = reading.cards[3];
  EXPECT_EQ(last.index, 3);
  EXPECT_EQ(last.pci_address, "0000:2e:00.0");
  EXPECT_EQ(last.power_watts, 103.0);
  EXPECT_EQ(last.memory_total_bytes, std::nullopt) << "429 is not the 42976 that it was";
  EXPECT_EQ(last.serial, std::nullopt);
  EXPECT_THAT(last.notes, ElementsAre("efsmi: a line about this card is cut off."));
}

TEST(Efsmi, QuotesAShellThatDoesNotFindIt) {
  const SourceReading reading = Main("command-not-found");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre("efsmi printed no card table; it began: \"sh: 1: efsmi: not found\""));
}

TEST(Efsmi, QuotesAnErrorInChinese) {
  const SourceReading reading = Main("chinese-error");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("错误：无法打开设备")));
}

TEST(Efsmi, ReportsThatItPrintedNothing) {
  EXPECT_THAT(Main("empty").notes, ElementsAre("efsmi printed nothing."));
}

TEST(Efsmi, TakesNothingHarmfulFromHostileText) {
  const SourceReading reading = Main("hostile");
  EXPECT_EQ(reading.source, "efsmi");
  EXPECT_EQ(reading.driver_version, std::nullopt);
  EXPECT_THAT(reading.notes, Contains(HasSubstr("1 line of more than 2048 bytes")));
  ASSERT_EQ(reading.cards.size(), 4u);

  EXPECT_EQ(reading.cards[0].index, 0);
  EXPECT_EQ(reading.cards[0].model, std::nullopt) << "it holds an escape sequence";
  EXPECT_EQ(reading.cards[0].temperature_celsius, std::nullopt);
  EXPECT_EQ(reading.cards[0].power_watts, std::nullopt);
  EXPECT_EQ(reading.cards[0].memory_total_bytes, std::nullopt);
  EXPECT_EQ(reading.cards[0].utilization_percent, std::nullopt);
  EXPECT_EQ(reading.cards[0].serial, std::nullopt);

  EXPECT_EQ(reading.cards[1].index, std::nullopt) << "99999999999999999999 is no card number";
  EXPECT_EQ(reading.cards[1].pci_address, "0000:09:00.0");

  EXPECT_EQ(reading.cards[2].index, 1);
  EXPECT_EQ(reading.cards[2].temperature_celsius, 46.0);
  EXPECT_THAT(reading.cards[2].notes, ElementsAre("efsmi: could not read NAME, SN."));

  EXPECT_EQ(reading.cards[3].index, std::nullopt) << "a second card 1";
  EXPECT_EQ(reading.cards[3].serial, "C807J40510999");
}

TEST(Efsmi, Lists256CardsAtMost) {
  const SourceReading reading = Main("three-hundred-cards");
  EXPECT_EQ(reading.cards.size(), 256u);
  EXPECT_THAT(reading.notes, ElementsAre("efsmi lists more than 256 cards; the rest was left out."));
}

TEST(EfsmiDmon, ReadsTheEightS60s) {
  const SourceReading dmon = Dmon("s60-1.2.0.301");
  ASSERT_EQ(dmon.cards.size(), 8u);
  EXPECT_THAT(dmon.notes, IsEmpty());
  const CardReading& busy = dmon.cards[5];
  EXPECT_EQ(busy.index, 5);
  EXPECT_EQ(busy.power_watts, 133.0);
  EXPECT_EQ(busy.temperature_celsius, 41.0);
  EXPECT_EQ(busy.utilization_percent, 73.5) << "DUsed, not the Sip beside it";
  EXPECT_EQ(busy.state, "Active");
  EXPECT_EQ(busy.memory_total_bytes, 42976 * kMiB);
  EXPECT_EQ(dmon.cards[5].memory_used_percent, 84.1);
  EXPECT_EQ(dmon.cards[0].memory_total_bytes, 49120 * kMiB);
}

TEST(EfsmiDmon, ReadsTheEightT20sWhichHaveNoMemColumn) {
  const SourceReading dmon = Dmon("t20-1.20.0");
  ASSERT_EQ(dmon.cards.size(), 8u);
  EXPECT_EQ(dmon.cards[0].temperature_celsius, 44.0) << "DTemp, not M1Temp";
  EXPECT_EQ(dmon.cards[0].utilization_percent, 97.4);
  EXPECT_EQ(dmon.cards[0].memory_used_percent, 62.5);
  EXPECT_EQ(dmon.cards[0].memory_total_bytes, std::nullopt);
  EXPECT_EQ(dmon.cards[0].memory_used_bytes, std::nullopt);
}

TEST(EfsmiDmon, ReadsEverySecondLine) {
  const SourceReading dmon = Dmon("s60-1.2.0.301-odd-lines");
  ASSERT_EQ(dmon.cards.size(), 4u);
  EXPECT_EQ(dmon.cards[1].index, 2);
  EXPECT_EQ(dmon.cards[1].power_watts, 103.0);
  EXPECT_THAT(dmon.cards[1].notes, IsEmpty());
}

TEST(EfsmiDmon, ReadsNoRowWithoutTitles) {
  const SourceReading dmon = Dmon("s60-1.2.0.301-even-lines");
  EXPECT_THAT(dmon.cards, IsEmpty());
  EXPECT_THAT(dmon.notes, ElementsAre(HasSubstr("efsmi --dmon printed no card table")));
}

TEST(EfsmiDmon, NamesTheCardWhoseLineIsCutOff) {
  const SourceReading dmon = Dmon("truncated-in-mid-line");
  ASSERT_EQ(dmon.cards.size(), 4u);
  EXPECT_EQ(dmon.cards[3].index, 3);
  EXPECT_EQ(dmon.cards[3].power_watts, std::nullopt);
  EXPECT_THAT(dmon.cards[3].notes, ElementsAre(HasSubstr("5 values under 11 titles")));
}

TEST(EfsmiDmon, TakesNothingHarmfulFromHostileText) {
  const SourceReading reading = Dmon("hostile");
  EXPECT_EQ(BrokenInvariant(reading), "");
  ASSERT_EQ(reading.cards.size(), 3u);
  EXPECT_EQ(reading.cards[0].power_watts, std::nullopt);
  EXPECT_EQ(reading.cards[0].utilization_percent, std::nullopt);
  EXPECT_EQ(reading.cards[0].state, std::nullopt);
  EXPECT_EQ(reading.cards[2].index, 3);
  EXPECT_EQ(reading.cards[2].utilization_percent, 12.5);
}

TEST(EfsmiDmon, ReportsWhyThereIsNothing) {
  EXPECT_THAT(Dmon("no-devices").notes, ElementsAre(HasSubstr("no device nodes")));
  EXPECT_THAT(Dmon("command-not-found").notes, ElementsAre(HasSubstr("bash: efsmi: command not found")));
  EXPECT_THAT(Dmon("chinese-error").notes, ElementsAre(HasSubstr("错误")));
  EXPECT_THAT(ParseEfsmiDmon("").notes, ElementsAre("efsmi --dmon printed nothing."));
}

}  // namespace
}  // namespace fulldeck::device
