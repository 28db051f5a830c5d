#include "device/text/nvidia_proc_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixture_text.h"
#include "reading_invariants.h"

namespace fulldeck::device {
namespace {

using fulldeck::testing::BrokenInvariant;
using fulldeck::testing::FixtureText;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::optional<std::string> DriverVersion(const std::string& name) {
  return ParseNvidiaVersion(FixtureText("texts/nvidia/version-" + name + ".txt"));
}

CardReading Card(const std::string& name) {
  CardReading card = ParseNvidiaInformation(FixtureText("texts/nvidia/information-" + name + ".txt"));
  EXPECT_EQ(BrokenInvariant(card), "") << name;
  return card;
}

TEST(NvidiaVersion, IsReadFromTheProprietaryModule) {
  EXPECT_EQ(DriverVersion("470"), "470.57.02");
}

TEST(NvidiaVersion, IsReadFromTheOpenModule) {
  EXPECT_EQ(DriverVersion("550-open"), "550.90.07");
  EXPECT_EQ(DriverVersion("580-open"), "580.159.04");
  EXPECT_EQ(DriverVersion("540-aarch64"), "540.4.0");
}

TEST(NvidiaVersion, IsAbsentWhenTheLineIsLostOrHostile) {
  EXPECT_EQ(DriverVersion("470-odd-lines"), "470.57.02");
  EXPECT_EQ(DriverVersion("470-even-lines"), std::nullopt) << "GCC's version is not the driver's";
  EXPECT_EQ(DriverVersion("hostile"), std::nullopt);
  EXPECT_EQ(ParseNvidiaVersion(""), std::nullopt);
  EXPECT_EQ(ParseNvidiaVersion("无法读取\n"), std::nullopt);
}

TEST(NvidiaInformation, NamesAnH200UnderTheOpen580Module) {
  const CardReading card = Card("580-open");
  EXPECT_EQ(card.index, 0);
  EXPECT_EQ(card.model, "NVIDIA H200");
  EXPECT_EQ(card.uuid, "GPU-3badc0de-1111-2222-3333-444444444444");
  EXPECT_EQ(card.pci_address, "0000:18:00.0");
  EXPECT_EQ(card.firmware, "96.00.B4.00.0C") << "the Video BIOS, not the GSP's version";
  EXPECT_EQ(card.memory_total_bytes, std::nullopt);
  EXPECT_THAT(card.notes, IsEmpty());
}

TEST(NvidiaInformation, NamesAnA100Under470) {
  const CardReading card = Card("470");
  EXPECT_EQ(card.index, 6);
  EXPECT_EQ(card.model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(card.uuid, "GPU-2badc0de-1111-2222-3333-444444444444");
  EXPECT_EQ(card.pci_address, "0000:c7:00.0");
  EXPECT_THAT(card.notes, IsEmpty());
}

TEST(NvidiaInformation, ReadsModulesOfOldThatPrintLess) {
  const CardReading without_minor = Card("384");
  EXPECT_EQ(without_minor.index, std::nullopt);
  EXPECT_EQ(without_minor.pci_address, "0000:04:00.0");
  EXPECT_THAT(without_minor.notes, IsEmpty());
  const CardReading blacklist_word = Card("410");
  EXPECT_EQ(blacklist_word.index, 0);
  EXPECT_EQ(blacklist_word.model, "GeForce GTX 1080 Ti");
  EXPECT_THAT(blacklist_word.notes, IsEmpty());
}

TEST(NvidiaInformation, ReportsThatTheDriverExcludesTheCard) {
  const CardReading card = Card("550-excluded");
  EXPECT_EQ(card.index, 3);
  EXPECT_THAT(card.notes, ElementsAre(HasSubstr("excluded")));
}

TEST(NvidiaInformation, LeavesOutTheQuestionMarksOfACardThatSleeps) {
  const CardReading card = Card("not-initialised");
  EXPECT_EQ(card.model, "NVIDIA RTX A3000 Laptop GPU");
  EXPECT_EQ(card.uuid, std::nullopt);
  EXPECT_EQ(card.firmware, std::nullopt);
  EXPECT_EQ(card.pci_address, "0000:01:00.0");
  EXPECT_THAT(card.notes, IsEmpty());
}

TEST(NvidiaInformation, KeepsTheLinesThatAreLeftAndNamesTheLost) {
  const CardReading odd = Card("580-open-odd-lines");
  EXPECT_EQ(odd.model, "NVIDIA H200");
  EXPECT_EQ(odd.index, 0);
  EXPECT_EQ(odd.pci_address, std::nullopt);
  EXPECT_THAT(odd.notes, ElementsAre(HasSubstr("\"Bus Location\""), HasSubstr("\"Video BIOS\"")));
  const CardReading even = Card("580-open-even-lines");
  EXPECT_EQ(even.model, std::nullopt);
  EXPECT_EQ(even.pci_address, "0000:18:00.0");
  EXPECT_THAT(even.notes, ElementsAre(HasSubstr("\"Model\"")));
}

TEST(NvidiaInformation, DoesNotTrustALineWithoutAnEnd) {
  const CardReading card = Card("truncated-in-mid-line");
  EXPECT_EQ(card.model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(card.pci_address, std::nullopt);
  EXPECT_THAT(card.notes, ElementsAre(HasSubstr("cut off"), HasSubstr("\"Bus Location\"")));
}

TEST(NvidiaInformation, ReportsThatAForeignFileNamesNoCard) {
  EXPECT_THAT(Card("chinese-error").notes, ElementsAre(HasSubstr("does not say what card this is")));
  EXPECT_THAT(ParseNvidiaInformation("").notes, ElementsAre(HasSubstr("does not say what card this is")));
}

TEST(NvidiaInformation, TakesNothingHarmfulFromHostileText) {
  const CardReading card = Card("hostile");
  EXPECT_EQ(card.model, std::nullopt);
  EXPECT_EQ(card.uuid, std::nullopt);
  EXPECT_EQ(card.firmware, std::nullopt);
  EXPECT_EQ(card.pci_address, std::nullopt);
  EXPECT_EQ(card.index, std::nullopt);
  EXPECT_THAT(card.notes, ElementsAre(HasSubstr("2048 bytes"),
                                      HasSubstr("could not read Model, Video BIOS, Bus Location, Device Minor")));
}

}  // namespace
}  // namespace fulldeck::device
