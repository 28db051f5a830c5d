#include "device/pci_address.h"

#include <gtest/gtest.h>

namespace fulldeck::device {
namespace {

TEST(PciAddress, GivesOneSpellingToWhatToolsAndLibrariesPrint) {
  EXPECT_EQ(NormalPciAddress("00:3d:0.0"), "0000:3d:00.0");
  EXPECT_EQ(NormalPciAddress("00000000:3D:00.0"), "0000:3d:00.0");
  EXPECT_EQ(NormalPciAddress("3d:00.0"), "0000:3d:00.0");
  EXPECT_EQ(NormalPciAddress("0000:3d:00.0"), "0000:3d:00.0");
  EXPECT_EQ(NormalPciAddress("0000:C1:1F.7"), "0000:c1:1f.7");
}

TEST(PciAddress, KeepsADomainThatIsNotZero) {
  EXPECT_EQ(NormalPciAddress("0001:3d:00.0"), "0001:3d:00.0");
  EXPECT_EQ(NormalPciAddress("10000:e1:00.0"), "10000:e1:00.0");
  EXPECT_EQ(NormalPciAddress("ffffffff:ff:1f.7"), "ffffffff:ff:1f.7");
}

TEST(PciAddress, IsStableWhenItReadsItsOwnSpelling) {
  for (const char* text : {"00:3d:0.0", "3D:00.0", "10000:e1:00.0"}) {
    const auto once = NormalPciAddress(text);
    ASSERT_TRUE(once.has_value()) << text;
    EXPECT_EQ(NormalPciAddress(*once), once);
  }
}

TEST(PciAddress, RefusesWhatIsNoAddress) {
  for (const char* text : {"",
                           ":",
                           "3d",
                           "3d:00",
                           "3d:00.",
                           "3d:00.8",
                           "3d:20.0",
                           "100:00.0",
                           "0000:100:00.0",
                           "000000000:3d:00.0",
                           "0000:3d:00.0 ",
                           " 0000:3d:00.0",
                           "0000:3d:00.0x",
                           "0000:3d:00.00",
                           "0000:xx:00.0",
                           "0000:3d:00:0",
                           "-1:3d:00.0",
                           "0x0:3d:00.0",
                           "11:33:56",
                           "NA"}) {
    EXPECT_EQ(NormalPciAddress(text), std::nullopt) << '"' << text << '"';
  }
}

}  // namespace
}  // namespace fulldeck::device
