#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "device/libraries/library_reader.h"
#include "fake_library.h"

namespace fulldeck::device {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMib = 1 << 20;

base::Result<SourceReading> Read(const std::string& variant) {
  return testing::ReadFakeLibrary(testing::FakeLibraryPath(variant, "libefml.so"), OpenEfml);
}

SourceReading MustRead(const std::string& variant) {
  return testing::MustReadFakeLibrary(testing::FakeLibraryPath(variant, "libefml.so"), OpenEfml);
}

TEST(EfmlReader, ReadsEightT20) {
  const SourceReading reading = MustRead("good");
  EXPECT_EQ(reading.source, "EFML 1.20.0");
  EXPECT_EQ(reading.driver_version, "2.4.20230829");
  EXPECT_THAT(reading.notes, IsEmpty());
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(reading.cards[i].index, i);
    EXPECT_EQ(reading.cards[i].model, "T20");
    EXPECT_EQ(reading.cards[i].serial, "W2800121050" + std::to_string(i));
    EXPECT_THAT(reading.cards[i].notes, IsEmpty());
  }
}

TEST(EfmlReader, ReadsEveryValueOfACardInItsOwnUnit) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  const CardReading& card = reading.cards[1];
  EXPECT_EQ(card.uuid, "504743310d0b0a00");
  EXPECT_EQ(card.firmware, "10.19.3");
  EXPECT_EQ(card.pci_address, "0000:3e:00.0");
  EXPECT_EQ(card.memory_total_bytes, 32768 * kMib);
  EXPECT_EQ(card.memory_used_bytes, 12000 * kMib);
  EXPECT_EQ(card.utilization_percent, 87.5);
  EXPECT_EQ(card.power_watts, 231.25);
  EXPECT_EQ(card.power_limit_watts, 300);
  EXPECT_EQ(card.temperature_celsius, 58.5);
  EXPECT_EQ(card.state, "Active");
  EXPECT_EQ(reading.cards[0].state, "Sleep");
  EXPECT_EQ(reading.cards[0].memory_used_bytes, 0u);
}

TEST(EfmlReader, ListsProcessesWithoutMemoryBecauseItsUnitIsNotPublished) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  ASSERT_TRUE(reading.cards[1].processes.has_value());
  ASSERT_EQ(reading.cards[1].processes->size(), 2u);
  EXPECT_EQ(reading.cards[1].processes->at(0).pid, 5001);
  EXPECT_EQ(reading.cards[1].processes->at(0).memory_bytes, std::nullopt);
  EXPECT_EQ(reading.cards[1].processes->at(1).pid, 5002);
  ASSERT_TRUE(reading.cards[0].processes.has_value());
  EXPECT_THAT(*reading.cards[0].processes, IsEmpty());
}

TEST(EfmlReader, ReadsTemperatureAndStateOfAnS60ByTheNewerCalls) {
  const SourceReading reading = MustRead("s60");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[1].model, "S60");
  EXPECT_EQ(reading.cards[1].memory_total_bytes, 49120 * kMib);
  EXPECT_EQ(reading.cards[1].temperature_celsius, 58.5);
  EXPECT_EQ(reading.cards[1].state, "Active");
  EXPECT_EQ(reading.cards[0].state, "Sleep");
}

TEST(EfmlReader, NotesACardThatIsNotHealthy) {
  const SourceReading reading = MustRead("s60");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_THAT(reading.cards[6].notes, IsEmpty());
  EXPECT_THAT(reading.cards[7].notes, ElementsAre(HasSubstr("not healthy")));
}

TEST(EfmlReader, BelievesNoNonsense) {
  const SourceReading reading = MustRead("nonsense");
  EXPECT_EQ(reading.source, "EFML");
  EXPECT_EQ(reading.driver_version, std::nullopt);
  ASSERT_EQ(reading.cards.size(), 2u);
  for (const CardReading& card : reading.cards) {
    EXPECT_EQ(card.model, std::nullopt);
    EXPECT_EQ(card.uuid, std::nullopt);
    EXPECT_EQ(card.serial, std::nullopt);
    EXPECT_EQ(card.firmware, std::nullopt);
    EXPECT_EQ(card.pci_address, std::nullopt);
    EXPECT_EQ(card.memory_used_bytes.has_value(), false);
    EXPECT_EQ(card.utilization_percent, std::nullopt);
    EXPECT_EQ(card.power_watts, std::nullopt);
    EXPECT_EQ(card.power_limit_watts, std::nullopt);
    EXPECT_EQ(card.temperature_celsius, std::nullopt);
    for (const char* what : {"name that has no end", "UUID that has no end", "serial number that has no end",
                             "PCI address", "memory", "utilisation", "power of", "power limit", "temperature"}) {
      EXPECT_THAT(card.notes, Contains(HasSubstr(what)));
    }
  }
  EXPECT_EQ(reading.cards[0].memory_total_bytes, 32768 * kMib);
  EXPECT_EQ(reading.cards[0].processes, std::nullopt);
  EXPECT_THAT(reading.cards[0].notes, Contains(HasSubstr("lists 4000000000 processes")));
  EXPECT_EQ(reading.cards[1].memory_total_bytes, std::nullopt);
  ASSERT_TRUE(reading.cards[1].processes.has_value());
  EXPECT_THAT(*reading.cards[1].processes, IsEmpty());
}

TEST(EfmlReader, ShowsNoCardWhenTheCountCannotBe) {
  const SourceReading reading = MustRead("too_many");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("counts 4000000000 cards")));
}

TEST(EfmlReader, SendsALibraryWithOnlyTheNewerInterfaceToTheTextOfEfsmi) {
  const auto reading = Read("new_only");
  ASSERT_FALSE(reading.ok());
  EXPECT_THAT(reading.error().message, HasSubstr("only the newer interface"));
  EXPECT_THAT(reading.error().message, HasSubstr("efsmi instead"));
}

TEST(EfmlReader, NamesTheFunctionThatIsMissing) {
  const auto reading = Read("no_symbol");
  ASSERT_FALSE(reading.ok());
  EXPECT_THAT(reading.error().message, HasSubstr("EfmlGetDevCount is missing"));
}

TEST(EfmlReader, ReportsWhyTheLibraryDoesNotStart) {
  const auto not_loaded = Read("not_loaded");
  ASSERT_FALSE(not_loaded.ok());
  EXPECT_THAT(not_loaded.error().message, HasSubstr("the driver is not loaded"));
  EXPECT_THAT(not_loaded.error().message, HasSubstr("(code 6)"));
  const auto not_compatible = Read("not_compatible");
  ASSERT_FALSE(not_compatible.ok());
  EXPECT_THAT(not_compatible.error().message, HasSubstr("not compatible"));
  EXPECT_THAT(not_compatible.error().message, HasSubstr("(code 11)"));
}

TEST(EfmlReader, RefusesAFileThatIsNoLibrary) {
  EXPECT_FALSE(Read("not_elf").ok());
  EXPECT_FALSE(Read("empty").ok());
}

}  // namespace
}  // namespace fulldeck::device
