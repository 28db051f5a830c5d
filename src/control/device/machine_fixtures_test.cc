// The trees under tests/fixtures/machines are written by hand. This test checks their consistency, so that a test
// that uses one of them does not fail because of the tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "device/text/efsmi_text.h"
#include "device/text/npu_smi_text.h"
#include "device/text/nvidia_proc_text.h"
#include "fixture_text.h"

namespace fulldeck::device {
namespace {

using fulldeck::testing::FixtureText;

std::filesystem::path Root(const std::string& machine) {
  return std::filesystem::path(FULLDECK_FIXTURES) / "machines" / machine;
}

void ExpectCardsInSysfs(const std::string& machine, const SourceReading& reading, const std::string& vendor) {
  ASSERT_EQ(reading.cards.size(), 8u);
  for (const CardReading& card : reading.cards) {
    const std::string device = "machines/" + machine + "/sys/bus/pci/devices/" + card.pci_address.value_or("none");
    EXPECT_EQ(FixtureText(device + "/vendor"), vendor + "\n");
    EXPECT_EQ(FixtureText(device + "/class"), "0x120000\n");
  }
}

TEST(MachineFixtures, EnflameTreesAgreeWithTheirEfsmi) {
  for (const std::string machine : {"8xT20", "8xS60"}) {
    const SourceReading reading = ParseEfsmi(FixtureText("machines/" + machine + "/usr/share/efsmi/table.txt"));
    ExpectCardsInSysfs(machine, reading, "0x1e36");
    const SourceReading dmon = ParseEfsmiDmon(FixtureText("machines/" + machine + "/usr/share/efsmi/dmon.txt"));
    ASSERT_EQ(dmon.cards.size(), 8u);
    for (const CardReading& card : reading.cards) {
      const std::string number = std::to_string(card.index.value_or(-1));
      EXPECT_TRUE(exists(Root(machine) / "dev" / ("gcu" + number)));
      EXPECT_TRUE(
          exists(Root(machine) / "sys/bus/pci/devices" / *card.pci_address / "enflame" / ("gcu" + number) / "dev"));
      EXPECT_TRUE(dmon.cards[static_cast<std::size_t>(card.index.value_or(0))].memory_used_percent.has_value());
    }
    EXPECT_EQ(FixtureText("machines/" + machine + "/sys/module/enflame/version"), *reading.driver_version + "\n");
  }
}

TEST(MachineFixtures, AscendTreeAgreesWithItsNpuSmi) {
  const SourceReading reading = ParseNpuSmi(FixtureText("machines/8xAscend910B/usr/share/npu-smi/info.txt"));
  ExpectCardsInSysfs("8xAscend910B", reading, "0x19e5");
  for (const CardReading& card : reading.cards) {
    EXPECT_TRUE(exists(Root("8xAscend910B") / "dev" / ("davinci" + std::to_string(card.index.value_or(-1)))));
  }
}

TEST(MachineFixtures, H200TreeAgreesWithItsDriver) {
  const std::string driver = "machines/1xH200/proc/driver/nvidia/";
  EXPECT_EQ(ParseNvidiaVersion(FixtureText(driver + "version")), "580.159.04");
  const CardReading card = ParseNvidiaInformation(FixtureText(driver + "gpus/0000:18:00.0/information"));
  EXPECT_EQ(card.pci_address, "0000:18:00.0");
  EXPECT_TRUE(exists(Root("1xH200") / "dev" / ("nvidia" + std::to_string(card.index.value_or(-1)))));
  EXPECT_EQ(FixtureText("machines/1xH200/sys/bus/pci/devices/0000:18:00.0/vendor"), "0x10de\n");
}

TEST(MachineFixtures, OneProcessHoldsTwoT20s) {
  const std::filesystem::path fds = Root("8xT20") / "proc/4242/fd";
  int cards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fds)) {
    const std::string target = read_symlink(entry.path()).string();
    if (target == "/dev/gcu0" || target == "/dev/gcu1") ++cards;
  }
  EXPECT_EQ(cards, 2);
}

TEST(MachineFixtures, ToolsCanBeRun) {
  for (const char* tool : {"8xT20/usr/bin/efsmi", "8xS60/usr/bin/efsmi", "8xAscend910B/usr/bin/npu-smi"}) {
    const auto permissions = status(Root("") / tool).permissions();
    EXPECT_NE(permissions & std::filesystem::perms::owner_exec, std::filesystem::perms::none) << tool;
  }
}

}  // namespace
}  // namespace fulldeck::device
