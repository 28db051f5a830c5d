#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "device/libraries/library_reader.h"
#include "fake_library.h"

namespace fulldeck::device {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMib = 1 << 20;

base::Result<SourceReading> Read(const std::string& variant) {
  return testing::ReadFakeLibrary(testing::FakeLibraryPath(variant, "libdcmi.so"), OpenDcmi);
}

SourceReading MustRead(const std::string& variant) {
  return testing::MustReadFakeLibrary(testing::FakeLibraryPath(variant, "libdcmi.so"), OpenDcmi);
}

TEST(DcmiReader, ReadsEightCards) {
  const SourceReading reading = MustRead("good");
  EXPECT_EQ(reading.source, "DCMI 24.1.3");
  EXPECT_EQ(reading.driver_version, "24.1.rc2");
  EXPECT_THAT(reading.notes, IsEmpty());
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(reading.cards[i].index, i);
    EXPECT_EQ(reading.cards[i].serial, "1024BK200" + std::to_string(i));
    EXPECT_THAT(reading.cards[i].notes, IsEmpty());
  }
}

TEST(DcmiReader, ReadsEveryValueOfACardInItsOwnUnit) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  const CardReading& card = reading.cards[1];
  EXPECT_EQ(card.model, "910B3");
  EXPECT_EQ(card.uuid, "00000011-00000021-00000031-00000041-00000051");
  EXPECT_EQ(card.pci_address, "0000:01:00.0");
  EXPECT_EQ(card.memory_total_bytes, 65536 * kMib);
  EXPECT_EQ(card.memory_used_bytes, 60001 * kMib);
  EXPECT_EQ(card.utilization_percent, 99);
  EXPECT_THAT(card.power_watts.value_or(-1), DoubleNear(310.5, 1e-9));
  EXPECT_EQ(card.power_limit_watts, std::nullopt);
  EXPECT_EQ(card.temperature_celsius, 63);
  ASSERT_TRUE(card.processes.has_value());
  ASSERT_EQ(card.processes->size(), 1u);
  EXPECT_EQ(card.processes->at(0).pid, 6001);
  EXPECT_EQ(card.processes->at(0).memory_bytes, 59000 * kMib);
}

TEST(DcmiReader, ReportsTheHealthAsNpuSmiDoes) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[0].state, "OK");
  EXPECT_EQ(reading.cards[2].state, "Warning");
  EXPECT_EQ(reading.cards[5].state, "Alarm");
  EXPECT_EQ(reading.cards[6].state, "Critical");
}

TEST(DcmiReader, ShowsEachChipOfABoardButNotItsMicrocontroller) {
  const SourceReading reading = MustRead("old");
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(reading.cards[i].index, i);
    EXPECT_EQ(reading.cards[i].serial, std::nullopt) << "the label is the board's, not the chip's";
  }
}

TEST(DcmiReader, BelievesNoNonsense) {
  const SourceReading reading = MustRead("nonsense");
  EXPECT_EQ(reading.source, "DCMI");
  EXPECT_EQ(reading.driver_version, std::nullopt);
  ASSERT_EQ(reading.cards.size(), 2u);
  for (const CardReading& card : reading.cards) {
    EXPECT_EQ(card.index, std::nullopt);
    EXPECT_EQ(card.model, std::nullopt);
    EXPECT_EQ(card.serial, std::nullopt);
    EXPECT_EQ(card.pci_address, std::nullopt);
    EXPECT_EQ(card.memory_used_bytes, std::nullopt);
    EXPECT_EQ(card.utilization_percent, std::nullopt);
    EXPECT_EQ(card.power_watts, std::nullopt);
    EXPECT_EQ(card.temperature_celsius, std::nullopt);
    EXPECT_EQ(card.state, std::nullopt);
    EXPECT_EQ(card.processes, std::nullopt);
    for (const char* what : {"the number -7", "name that has no end", "serial number that has no end", "PCI address",
                             "memory", "utilisation", "power", "temperature", "processes"}) {
      EXPECT_THAT(card.notes, Contains(HasSubstr(what)));
    }
  }
  EXPECT_EQ(reading.cards[0].memory_total_bytes, 65536 * kMib);
  EXPECT_EQ(reading.cards[1].memory_total_bytes, std::nullopt);
  EXPECT_THAT(reading.cards[1].notes, Contains(HasSubstr("no longer exists")));
}

TEST(DcmiReader, ShowsNoCardWhenTheCountCannotBe) {
  const SourceReading reading = MustRead("too_many");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("counts 2000000000 cards")));
}

TEST(DcmiReader, NamesTheFunctionThatIsMissing) {
  const auto reading = Read("no_symbol");
  ASSERT_FALSE(reading.ok());
  EXPECT_THAT(reading.error().message, HasSubstr("dcmi_get_card_list is missing"));
}

TEST(DcmiReader, ReportsWhyTheLibraryDoesNotStart) {
  const auto reading = Read("container");
  ASSERT_FALSE(reading.ok());
  EXPECT_EQ(reading.error().message, "DCMI does not start: not supported inside a container (code -8013)");
}

TEST(DcmiReader, RefusesAFileThatIsNoLibrary) {
  EXPECT_FALSE(Read("not_elf").ok());
  EXPECT_FALSE(Read("empty").ok());
}

}  // namespace
}  // namespace fulldeck::device
