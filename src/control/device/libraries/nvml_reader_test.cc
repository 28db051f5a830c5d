#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "device/libraries/library_reader.h"
#include "device/libraries/nvml_shaped.h"
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
  return testing::ReadFakeLibrary(testing::FakeLibraryPath(variant, "libnvidia-ml.so.1"), OpenNvml);
}

SourceReading MustRead(const std::string& variant) {
  return testing::MustReadFakeLibrary(testing::FakeLibraryPath(variant, "libnvidia-ml.so.1"), OpenNvml);
}

TEST(NvmlReader, ReadsEightCards) {
  const SourceReading reading = MustRead("good");
  EXPECT_EQ(reading.source, "NVML 13.580.159");
  EXPECT_EQ(reading.driver_version, "580.159.07");
  EXPECT_THAT(reading.notes, IsEmpty());
  ASSERT_EQ(reading.cards.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(reading.cards[i].index, i);
    EXPECT_THAT(reading.cards[i].notes, IsEmpty());
  }
}

TEST(NvmlReader, ReadsEveryValueOfACard) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  const CardReading& card = reading.cards[0];
  EXPECT_EQ(card.model, "NVIDIA H200");
  EXPECT_EQ(card.uuid, "GPU-6a8b4e5c-0000-4000-8000-000000000000");
  EXPECT_EQ(card.serial, "1653324000000");
  EXPECT_EQ(card.pci_address, "0000:1b:00.0");
  EXPECT_EQ(card.utilization_percent, 97);
  EXPECT_THAT(card.power_watts.value_or(-1), DoubleNear(412.345, 1e-9));
  EXPECT_THAT(card.power_limit_watts.value_or(-1), DoubleNear(700, 1e-9));
  EXPECT_EQ(card.temperature_celsius, 61);
  EXPECT_EQ(card.state, "P0");
  EXPECT_EQ(reading.cards[5].state, "P8");
  EXPECT_EQ(reading.cards[7].pci_address, "0001:ce:00.0");
}

TEST(NvmlReader, ShowsMemoryInUseWithoutWhatTheDriverReserves) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[0].memory_total_bytes, 143771 * kMib);
  EXPECT_EQ(reading.cards[0].memory_used_bytes, 71000 * kMib);
  EXPECT_EQ(reading.cards[2].memory_used_bytes, 0u);
}

TEST(NvmlReader, ListsTheProcessesOnACard) {
  const SourceReading reading = MustRead("good");
  ASSERT_EQ(reading.cards.size(), 8u);
  ASSERT_TRUE(reading.cards[0].processes.has_value());
  ASSERT_EQ(reading.cards[0].processes->size(), 2u);
  EXPECT_EQ(reading.cards[0].processes->at(0).pid, 4100);
  EXPECT_EQ(reading.cards[0].processes->at(0).memory_bytes, 2000 * kMib);
  EXPECT_EQ(reading.cards[0].processes->at(1).pid, 4101);
  EXPECT_EQ(reading.cards[0].processes->at(1).memory_bytes, std::nullopt);
  ASSERT_TRUE(reading.cards[1].processes.has_value());
  EXPECT_EQ(reading.cards[1].processes->size(), 70u);
  ASSERT_TRUE(reading.cards[2].processes.has_value());
  EXPECT_THAT(*reading.cards[2].processes, IsEmpty());
}

TEST(NvmlReader, ListsTheProcessesOfDriversWithLongerEntries) {
  const SourceReading reading = MustRead("r535");
  ASSERT_EQ(reading.cards.size(), 8u);
  ASSERT_TRUE(reading.cards[1].processes.has_value());
  ASSERT_EQ(reading.cards[1].processes->size(), 70u);
  EXPECT_EQ(reading.cards[1].processes->at(69).pid, 4169);
  EXPECT_EQ(reading.cards[1].processes->at(69).memory_bytes, 2000 * kMib + 69);
}

TEST(NvmlReader, LeavesOutWhatAnOldDriverCannotReport) {
  const SourceReading reading = MustRead("old");
  ASSERT_EQ(reading.cards.size(), 8u);
  const CardReading& card = reading.cards[0];
  EXPECT_EQ(card.model, "NVIDIA H200");
  EXPECT_EQ(card.memory_used_bytes, 71618 * kMib);
  EXPECT_EQ(card.serial, std::nullopt);
  EXPECT_EQ(card.pci_address, std::nullopt);
  EXPECT_EQ(card.power_limit_watts, std::nullopt);
  EXPECT_EQ(card.temperature_celsius, std::nullopt);
  EXPECT_EQ(card.state, std::nullopt);
  ASSERT_TRUE(card.processes.has_value());
  EXPECT_EQ(card.processes->size(), 2u);
  EXPECT_THAT(card.notes, IsEmpty());
}

TEST(NvmlReader, ShowsALostCardByIndexWithANote) {
  const SourceReading reading = MustRead("troubled");
  ASSERT_EQ(reading.cards.size(), 8u);
  const CardReading& card = reading.cards[2];
  EXPECT_EQ(card.index, 2);
  EXPECT_EQ(card.model, std::nullopt);
  EXPECT_EQ(card.memory_total_bytes, std::nullopt);
  EXPECT_EQ(card.processes, std::nullopt);
  EXPECT_THAT(card.notes, ElementsAre("NVML cannot reach this card: the card is lost: it fell off the bus or cannot be "
                                      "reached (code 15)."));
}

TEST(NvmlReader, ReportsOnceThatACardWasLostWhileItWasRead) {
  const SourceReading reading = MustRead("troubled");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[3].model, std::nullopt);
  EXPECT_EQ(reading.cards[3].utilization_percent, std::nullopt);
  EXPECT_THAT(reading.cards[3].notes, ElementsAre(HasSubstr("the card is lost")));
}

TEST(NvmlReader, NotesThatMigIsOn) {
  const SourceReading reading = MustRead("troubled");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[4].utilization_percent, std::nullopt);
  EXPECT_THAT(reading.cards[4].notes, ElementsAre(HasSubstr("MIG is on")));
}

TEST(NvmlReader, LeavesOutASensorThatACardDoesNotHave) {
  const SourceReading reading = MustRead("troubled");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_EQ(reading.cards[5].power_watts, std::nullopt);
  EXPECT_EQ(reading.cards[5].utilization_percent, 34);
  EXPECT_THAT(reading.cards[5].notes, IsEmpty());
}

TEST(NvmlReader, NotesADeviceNodeThatHasAnotherNumber) {
  const SourceReading reading = MustRead("troubled");
  ASSERT_EQ(reading.cards.size(), 8u);
  EXPECT_THAT(reading.cards[6].notes, ElementsAre("NVML says that the device node of this card is /dev/nvidia3."));
}

TEST(NvmlReader, BelievesNoNonsense) {
  const SourceReading reading = MustRead("nonsense");
  EXPECT_EQ(reading.source, "NVML");
  EXPECT_EQ(reading.driver_version, std::nullopt);
  EXPECT_THAT(reading.notes, Contains(HasSubstr("driver version that has no end")));
  ASSERT_EQ(reading.cards.size(), 2u);
  const CardReading& card = reading.cards[0];
  EXPECT_EQ(card.model, std::nullopt);
  EXPECT_EQ(card.uuid, std::nullopt);
  EXPECT_EQ(card.serial, std::nullopt);
  EXPECT_EQ(card.pci_address, std::nullopt);
  EXPECT_EQ(card.memory_total_bytes, 143771 * kMib);
  EXPECT_EQ(card.memory_used_bytes, std::nullopt);
  EXPECT_EQ(card.utilization_percent, std::nullopt);
  EXPECT_EQ(card.power_watts, std::nullopt);
  EXPECT_EQ(card.temperature_celsius, std::nullopt);
  EXPECT_EQ(card.state, std::nullopt);
  EXPECT_EQ(card.processes, std::nullopt);
  for (const char* what : {"name that has no end", "UUID that has no end", "serial number that has no end",
                           "PCI address", "more memory in use", "utilisation", "power", "temperature", "processes"}) {
    EXPECT_THAT(card.notes, Contains(HasSubstr(what)));
  }
}

TEST(NvmlReader, ShowsNoCardWhenTheCountCannotBe) {
  const SourceReading reading = MustRead("too_many");
  EXPECT_THAT(reading.cards, IsEmpty());
  EXPECT_THAT(reading.notes, ElementsAre(HasSubstr("counts 4000000000 cards")));
}

TEST(NvmlReader, NamesTheFunctionThatIsMissing) {
  const auto reading = Read("no_symbol");
  ASSERT_FALSE(reading.ok());
  EXPECT_THAT(reading.error().message, HasSubstr("nvmlDeviceGetCount_v2 is missing"));
  EXPECT_THAT(reading.error().message, HasSubstr("no_symbol/libnvidia-ml.so.1"));
}

TEST(NvmlReader, ReportsWhyTheLibraryDoesNotStart) {
  const auto reading = Read("not_loaded");
  ASSERT_FALSE(reading.ok());
  EXPECT_EQ(reading.error().message, "NVML does not start: the driver is not loaded (code 9)");
}

TEST(NvmlReader, RefusesAFileThatIsNoLibrary) {
  EXPECT_FALSE(Read("not_elf").ok());
  EXPECT_FALSE(Read("empty").ok());
}

TEST(NvmlReader, ReadsAgainAndAgain) {
  auto library = base::DynamicLibrary::Open(testing::FakeLibraryPath("good", "libnvidia-ml.so.1"));
  ASSERT_TRUE(library.ok());
  auto reader = OpenNvml(std::move(*library));
  ASSERT_TRUE(reader.ok());
  for (int i = 0; i < 3; ++i) {
    const auto reading = (*reader)->Read();
    ASSERT_TRUE(reading.ok());
    EXPECT_EQ(reading->cards.size(), 8u);
  }
}

TEST(IxmlReader, ReadsIluvatarsCopyOfTheInterfaceWithPowerInWatts) {
  const auto reading =
      testing::ReadFakeLibrary(testing::FakeLibraryPath("good", "libixml.so"),
                               [](base::DynamicLibrary library) { return OpenNvmlShaped(std::move(library), kIxml); });
  ASSERT_TRUE(reading.ok()) << reading.error().message;
  EXPECT_EQ(reading->source, "IXML 13.580.159");
  ASSERT_EQ(reading->cards.size(), 8u);
  const CardReading& card = reading->cards[0];
  EXPECT_EQ(card.model, "Iluvatar BI-V150");
  EXPECT_EQ(card.power_watts, 412);
  EXPECT_EQ(card.power_limit_watts, 350);
  EXPECT_EQ(card.memory_used_bytes, 71618 * kMib);  // the first version: reserved memory counts as used
}

TEST(IxmlReader, RefusesTheXmlParserOfTheSameName) {
  const auto reading =
      testing::ReadFakeLibrary(testing::FakeLibraryPath("foreign", "libixml.so"),
                               [](base::DynamicLibrary library) { return OpenNvmlShaped(std::move(library), kIxml); });
  ASSERT_FALSE(reading.ok());
  EXPECT_THAT(reading.error().message, HasSubstr("nvmlInit_v2 is missing"));
}

}  // namespace
}  // namespace fulldeck::device
