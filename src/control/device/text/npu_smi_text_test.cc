#include "device/text/npu_smi_text.h"

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
using ::testing::SizeIs;

constexpr std::uint64_t kMiB = 1 << 20;

SourceReading Read(const std::string& name) {
  SourceReading reading = ParseNpuSmi(FixtureText("texts/npu-smi/" + name + ".txt"));
  EXPECT_EQ(BrokenInvariant(reading), "") << name;
  return reading;
}

TEST(NpuSmi, ReadsTheEight910B3sOf24_1) {
  const SourceReading reading = Read("910b3-24.1.0.3");
  EXPECT_EQ(reading.source, "npu-smi 24.1.0.3");
  EXPECT_EQ(reading.driver_version, "24.1.0.3");
  EXPECT_THAT(reading.notes, IsEmpty());
  ASSERT_EQ(reading.cards.size(), 8u);
  const char* buses[] = {"c1", "01", "c2", "02", "81", "41", "82", "42"};
  const double watts[] = {98.8, 97.1, 289.4, 301.0, 95.6, 94.4, 96.2, 97.7};
  const double celsius[] = {44, 43, 58, 59, 42, 61, 43, 42};
  const double busy[] = {0, 0, 87, 91, 0, 0, 0, 0};
  const std::uint64_t used[] = {3409, 3395, 41842, 61825, 3393, 3396, 3394, 3397};
  for (std::size_t i = 0; i < 8; ++i) {
    const CardReading& card = reading.cards[i];
    EXPECT_EQ(card.index, static_cast<int>(i));
    EXPECT_EQ(card.model, "910B3");
    EXPECT_EQ(card.pci_address, "0000:" + std::string(buses[i]) + ":00.0");
    EXPECT_EQ(card.power_watts, watts[i]);
    EXPECT_EQ(card.power_limit_watts, std::nullopt);
    EXPECT_EQ(card.temperature_celsius, celsius[i]);
    EXPECT_EQ(card.utilization_percent, busy[i]);
    EXPECT_EQ(card.memory_used_bytes, used[i] * kMiB);
    EXPECT_EQ(card.memory_total_bytes, 65536 * kMiB);
    EXPECT_EQ(card.state, i == 5 ? "Warning" : "OK");
    EXPECT_EQ(card.serial, std::nullopt);
  }
}

TEST(NpuSmi, GivesProcessesToTheCardTheyRunOn) {
  const SourceReading reading = Read("910b3-24.1.0.3");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (const std::size_t idle : {0u, 1u, 4u, 5u, 6u, 7u}) {
    ASSERT_TRUE(reading.cards[idle].processes.has_value()) << "npu-smi looked, and there is none";
    EXPECT_THAT(*reading.cards[idle].processes, IsEmpty());
  }
  ASSERT_THAT(*reading.cards[2].processes, SizeIs(1));
  EXPECT_EQ((*reading.cards[2].processes)[0].pid, 31417);
  EXPECT_EQ((*reading.cards[2].processes)[0].memory_bytes, 38390 * kMiB);
  ASSERT_THAT(*reading.cards[3].processes, SizeIs(2));
  EXPECT_EQ((*reading.cards[3].processes)[1].pid, 31502) << "one without a name is a process too";
  EXPECT_EQ((*reading.cards[3].processes)[1].memory_bytes, 112 * kMiB);
}

TEST(NpuSmi, PointsToTheHealthOfACardThatIsNotWell) {
  const SourceReading reading = Read("910b3-24.1.0.3");
  EXPECT_THAT(reading.cards[5].notes,
              ElementsAre("npu-smi calls the health of this card Warning. See: npu-smi info -t health -i 5"));
  EXPECT_THAT(reading.cards[0].notes, IsEmpty());
}

TEST(NpuSmi, ReadsTheEight910AsOf21_0WithTheirHbm) {
  const SourceReading reading = Read("910a-21.0.4");
  EXPECT_EQ(reading.source, "npu-smi 21.0.4");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[0].model, "910A");
  EXPECT_EQ(reading.cards[0].power_watts, 70.9);
  EXPECT_EQ(reading.cards[0].memory_total_bytes, 32768 * kMiB) << "HBM, not the 15170 under Memory-Usage";
  EXPECT_EQ(reading.cards[0].memory_used_bytes, 0u);
  EXPECT_EQ(reading.cards[7].pci_address, "0000:02:00.0");
  EXPECT_EQ(reading.cards[7].utilization_percent, 99.0);
  EXPECT_EQ(reading.cards[7].memory_used_bytes, 30101 * kMiB);
  EXPECT_EQ(reading.cards[7].processes, std::nullopt) << "this version prints no process table";
}

TEST(NpuSmi, ReadsTheTableWithoutHugepagesOf21_0_2) {
  const SourceReading reading = Read("910a-21.0.2-two-of-eight");
  ASSERT_EQ(reading.cards.size(), 2u);
  EXPECT_EQ(reading.cards[0].index, 1);
  EXPECT_EQ(reading.cards[1].index, 4);
  EXPECT_EQ(reading.cards[1].temperature_celsius, 58.0);
  EXPECT_EQ(reading.cards[1].memory_total_bytes, 32768 * kMiB);
}

TEST(NpuSmi, ReportsWhereTorchCountsOtherwiseThanTheHost) {
  const SourceReading reading = Read("910b4-25.5.2-one-in-a-container");
  ASSERT_EQ(reading.cards.size(), 1u);
  EXPECT_EQ(reading.cards[0].index, 5) << "/dev/davinci5";
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("npu:0 is card 5 here")));
}

TEST(NpuSmi, NumbersTheTwoChipsOfABoardByPhyId) {
  const SourceReading reading = Read("a3-26.0.rc2");
  EXPECT_EQ(reading.source, "npu-smi 26.0.rc2");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    const CardReading& card = reading.cards[static_cast<std::size_t>(i)];
    EXPECT_EQ(card.index, i);
    EXPECT_EQ(card.model, "Ascend910");
    EXPECT_EQ(card.temperature_celsius, 36.0 + i);
    EXPECT_EQ(card.power_watts.has_value(), i % 2 == 0) << "the second chip's is a dash";
    EXPECT_EQ(card.memory_total_bytes, 65536 * kMiB);
  }
  EXPECT_EQ(reading.cards[6].power_watts, 311.4);
  EXPECT_EQ(reading.cards[3].pci_address, "0000:9b:00.0");
}

TEST(NpuSmi, DistinguishesTheProcessesOfTwoChips) {
  const SourceReading reading = Read("a3-26.0.rc2");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_THAT(*reading.cards[i].processes, IsEmpty());
  ASSERT_THAT(*reading.cards[6].processes, SizeIs(1));
  EXPECT_EQ((*reading.cards[6].processes)[0].pid, 271828);
  EXPECT_THAT(reading.cards[6].notes, IsEmpty());
  ASSERT_THAT(*reading.cards[7].processes, SizeIs(1));
  EXPECT_EQ((*reading.cards[7].processes)[0].pid, 271829);
  EXPECT_EQ((*reading.cards[7].processes)[0].memory_bytes, 54999 * kMiB);
  EXPECT_THAT(reading.cards[7].notes, ElementsAre("npu-smi: process 271829 is process 512 inside its container."));
}

TEST(NpuSmi, Reads310PsByTheirDeviceNumberAndMemoryUsage) {
  const SourceReading reading = Read("310p3-25.2.1");
  ASSERT_EQ(reading.cards.size(), 4u);
  const std::uint64_t used[] = {19435, 1910, 19562, 1909};
  for (std::size_t i = 0; i < 4; ++i) {
    const CardReading& card = reading.cards[i];
    EXPECT_EQ(card.index, static_cast<int>(i)) << "Device, not the NPU numbers 0, 32, 32768, 32800";
    EXPECT_EQ(card.model, "310P3");
    EXPECT_EQ(card.memory_used_bytes, used[i] * kMiB);
    EXPECT_EQ(card.memory_total_bytes, 21527 * kMiB);
    EXPECT_EQ(card.temperature_celsius, 46.0 + static_cast<double>(i));
  }
  EXPECT_EQ(reading.cards[0].power_watts, std::nullopt) << "NA";
  EXPECT_EQ(reading.cards[3].power_watts, 16.6);
  EXPECT_EQ(reading.cards[2].state, "Alarm");
  ASSERT_THAT(*reading.cards[2].processes, SizeIs(1));
  EXPECT_EQ((*reading.cards[2].processes)[0].pid, 77002);
  EXPECT_THAT(*reading.cards[3].processes, IsEmpty());
}

TEST(NpuSmi, DistinguishesTheDriversVersionFromItsOwn) {
  const SourceReading reading = Read("310p3-22.0.0");
  EXPECT_EQ(reading.source, "npu-smi 22.0.0");
  EXPECT_EQ(reading.driver_version, "22.0.2");
  ASSERT_EQ(reading.cards.size(), 1u);
  EXPECT_EQ(reading.cards[0].power_watts, 16.6);
  EXPECT_EQ(reading.cards[0].memory_used_bytes, 935 * kMiB);
}

TEST(NpuSmi, ReadsACardWithoutAPciAddress) {
  const SourceReading reading = Read("310b4-23.0.0");
  ASSERT_EQ(reading.cards.size(), 1u);
  EXPECT_EQ(reading.cards[0].index, 0);
  EXPECT_EQ(reading.cards[0].pci_address, std::nullopt);
  EXPECT_EQ(reading.cards[0].state, "Alarm");
  EXPECT_EQ(reading.cards[0].memory_total_bytes, 15609 * kMiB);
}

TEST(NpuSmi, NeverGivesOneCardTheValuesOfItsNeighbor) {
  for (const std::string name : {"910b3-24.1.0.3", "a3-26.0.rc2"}) {
    const SourceReading whole = Read(name);
    for (const char* half : {"-odd-lines", "-even-lines"}) {
      const SourceReading reading = Read(name + half);
      ASSERT_EQ(reading.cards.size(), 4u) << name << half;
      EXPECT_THAT(reading.notes, Contains(HasSubstr("could not be read")));
      for (const CardReading& card : reading.cards) {
        EXPECT_THAT(card.notes, SizeIs(1));
        for (const CardReading& right : whole.cards) {
          if (right.pci_address != card.pci_address) continue;
          EXPECT_TRUE(!card.index || card.index == right.index);
          EXPECT_TRUE(!card.memory_used_bytes || card.memory_used_bytes == right.memory_used_bytes);
          EXPECT_TRUE(!card.temperature_celsius || card.temperature_celsius == right.temperature_celsius);
          if (card.processes && !card.processes->empty()) {
            EXPECT_EQ((*card.processes)[0].pid, (*right.processes)[0].pid);
          }
        }
      }
    }
  }
}

TEST(NpuSmi, YieldsLessAndNothingElseWithoutAnyTwoOfItsLines) {
  for (const char* name :
       {"910b3-24.1.0.3", "910a-21.0.2-two-of-eight", "a3-26.0.rc2", "310p3-25.2.1", "310b4-23.0.0"}) {
    const std::string text = FixtureText("texts/npu-smi/" + std::string(name) + ".txt");
    const SourceReading whole = ParseNpuSmi(text);
    const int lines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    for (int first = 0; first < lines; ++first) {
      for (int second = first; second < lines; ++second) {
        const SourceReading damaged = ParseNpuSmi(WithoutLines(text, first, second));
        ASSERT_EQ(BrokenInvariant(damaged), "") << name << " without lines " << first << " and " << second;
        ASSERT_EQ(ContradictionOf(whole, damaged), "") << name << " without lines " << first << " and " << second;
      }
    }
  }
}

TEST(NpuSmi, YieldsLessAndNothingElseWhereverItIsCutOff) {
  for (const char* name :
       {"910b3-24.1.0.3", "910a-21.0.2-two-of-eight", "a3-26.0.rc2", "310p3-25.2.1", "310b4-23.0.0"}) {
    const std::string text = FixtureText("texts/npu-smi/" + std::string(name) + ".txt");
    const SourceReading whole = ParseNpuSmi(text);
    for (std::size_t length = 0; length < text.size(); ++length) {
      const SourceReading damaged = ParseNpuSmi(std::string_view(text).substr(0, length));
      ASSERT_EQ(BrokenInvariant(damaged), "") << name << " cut after " << length << " bytes";
      ASSERT_EQ(ContradictionOf(whole, damaged), "") << name << " cut after " << length << " bytes";
    }
  }
}

TEST(NpuSmi, LeavesOutAValueThatIsCutInTheMiddle) {
  const SourceReading reading = Read("truncated-in-mid-line");
  ASSERT_EQ(reading.cards.size(), 3u);
  EXPECT_EQ(reading.cards[1].memory_used_bytes, 3395 * kMiB);
  EXPECT_EQ(reading.cards[2].index, 2);
  EXPECT_EQ(reading.cards[2].power_watts, 289.4);
  EXPECT_EQ(reading.cards[2].memory_total_bytes, std::nullopt);
  EXPECT_THAT(reading.cards[2].notes, ElementsAre("npu-smi: a line about this card is cut off."));
}

TEST(NpuSmi, DoesNotKnowTheProcessesBehindACutOffTable) {
  const SourceReading reading = Read("truncated-in-processes");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_THAT(*reading.cards[0].processes, IsEmpty());
  EXPECT_THAT(*reading.cards[2].processes, SizeIs(1));
  EXPECT_EQ(reading.cards[3].processes, std::nullopt) << "not the process 314 that its cut number spells";
  EXPECT_EQ(reading.cards[7].processes, std::nullopt);
  EXPECT_THAT(reading.notes, ElementsAre("npu-smi: 1 process line could not be given to a card."));
}

TEST(NpuSmi, ReportsWhatToCheckWhenItCannotInitialize) {
  const SourceReading reading = Read("no-devices");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("ret is -8005")));
  EXPECT_THAT(reading.notes[0], HasSubstr("/dev/davinci"));
}

TEST(NpuSmi, QuotesWhatIsNoTable) {
  EXPECT_THAT(Read("command-not-found").notes,
              ElementsAre("npu-smi printed no card table; it began: \"bash: npu-smi: command not found\""));
  EXPECT_THAT(Read("chinese-error").notes, ElementsAre(HasSubstr("没有权限")));
  EXPECT_THAT(Read("empty").notes, ElementsAre("npu-smi printed nothing."));
}

TEST(NpuSmi, TakesNothingHarmfulFromHostileText) {
  const SourceReading reading = Read("hostile");
  EXPECT_THAT(reading.notes, Contains(HasSubstr("1 line of more than 2048 bytes")));
  EXPECT_THAT(reading.notes, Contains("npu-smi: 2 process lines could not be given to a card."));
  ASSERT_EQ(reading.cards.size(), 3u);
  EXPECT_EQ(reading.cards[0].pci_address, "0000:c1:00.0");
  EXPECT_EQ(reading.cards[0].model, std::nullopt);
  EXPECT_EQ(reading.cards[0].power_watts, std::nullopt);
  EXPECT_EQ(reading.cards[0].utilization_percent, std::nullopt);
  EXPECT_EQ(reading.cards[0].memory_used_bytes, std::nullopt);
  const CardReading& good = reading.cards[2];
  EXPECT_EQ(good.index, 3);
  EXPECT_EQ(good.utilization_percent, 7.0);
  ASSERT_THAT(*good.processes, SizeIs(1));
  EXPECT_EQ((*good.processes)[0].pid, 31418);
  EXPECT_EQ((*good.processes)[0].memory_bytes, std::nullopt);
}

// The layout of the next generation, known from one public description only: number and name in separate cells.
TEST(NpuSmi, ReadsATableWithoutChips) {
  const SourceReading reading = ParseNpuSmi(
      "| npu-smi 99.0    Version: 99.0 |\n"
      "| NPU ID | Name        | Health | Power(W) Temp(C) Hugepages-Usage(page) |\n"
      "|        |             | Bus-Id | NPU Util(%) Memory-Usage(MB) HBM-Usage(MB) |\n"
      "|========|=============|========|========|\n"
      "| 0      | Ascend950DT | OK     | 100.0 40 0 / 0 |\n"
      "|        |             | NA     | 20 0 / 0 1024 / 8192 |\n"
      "|--------|-------------|--------|--------|\n"
      "| 1      | Ascend950DT | OK     | 120.0 45 0 / 0 |\n"
      "|        |             | NA     | 0 0 / 0 2048 / 8192 |\n"
      "| NPU ID | Process id | Process name | Process memory(MB) | Process id in container |\n"
      "| 0      | 1001       | python       | 256                | NA                      |\n"
      "| No running processes found in NPU 1 |\n");
  EXPECT_EQ(BrokenInvariant(reading), "");
  ASSERT_EQ(reading.cards.size(), 2u);
  EXPECT_EQ(reading.cards[1].index, 1);
  EXPECT_EQ(reading.cards[1].model, "Ascend950DT");
  EXPECT_EQ(reading.cards[0].utilization_percent, 20.0);
  EXPECT_EQ(reading.cards[0].memory_used_bytes, 1024 * kMiB);
  ASSERT_THAT(*reading.cards[0].processes, SizeIs(1));
  EXPECT_THAT(*reading.cards[1].processes, IsEmpty());
}

}  // namespace
}  // namespace fulldeck::device
