#include "doctor/stack/version_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::doctor {
namespace {

TEST(Versions, AreOrderedAsPipOrdersThem) {
  const char* const rising[] = {"1.9.9",    "1.10.0", "2.0.0.dev3",  "2.0.0a1", "2.0.0b2", "2.0.0rc1",
                                "2.0.0rc4", "2.0.0",  "2.0.0.post1", "2.0.1",   "2.10"};
  for (std::size_t i = 0; i + 1 < std::size(rising); ++i) {
    EXPECT_EQ(CompareVersions(rising[i], rising[i + 1]), -1) << rising[i] << " " << rising[i + 1];
    EXPECT_EQ(CompareVersions(rising[i + 1], rising[i]), 1);
  }
  EXPECT_EQ(CompareVersions("2.0", "2.0.0"), 0);
  EXPECT_EQ(CompareVersions("1.10.0+2.5.136", "1.10.0"), 0) << "what follows a plus does not count";
  for (const char* const none : {"", "abc", "1.x", "..", "99999999999999999999", "1.0 beta"})
    EXPECT_EQ(CompareVersions(none, "1"), std::nullopt) << none;
}

TEST(Versions, FitOrDoNot) {
  EXPECT_EQ(VersionFits("2.1.0", ">=2.0.0rc4,<2.2.0"), true);
  EXPECT_EQ(VersionFits("2.2.0", ">=2.0.0rc4,<2.2.0"), false);
  EXPECT_EQ(VersionFits("2.2.0rc1", "<2.2.0"), false) << "a candidate of 2.2.0 is no 2.1";
  EXPECT_EQ(VersionFits("1.10.2", "==1.10.*"), true);
  EXPECT_EQ(VersionFits("1.100", "==1.10.*"), false);
  EXPECT_EQ(VersionFits("2.5.1", "~=2.4"), true);
  EXPECT_EQ(VersionFits("3.0", "~=2.4"), false);
  EXPECT_EQ(VersionFits("2.0", "!=2.0,>1"), false);
  EXPECT_EQ(VersionFits("2.0", ""), true);
  EXPECT_EQ(VersionFits("2.0", "quite new"), std::nullopt);
}

// Each row: the installed packages, and the expected mismatch; empty: none.
TEST(VersionPairs, NameThePairThatDoesNotFit) {
  struct Row {
    Installed installed;
    const char* package;
    const char* other;
    const char* row;
  };
  const Row rows[] = {
      {{{"mmsegmentation", "1.2.2"}, {"mmcv", "2.2.0"}, {"mmengine", "0.10.7"}}, "mmsegmentation", "mmcv", "E1"},
      {{{"mmsegmentation", "1.2.2"}, {"mmcv", "2.1.0"}, {"mmengine", "0.10.7"}}, "", "", ""},
      {{{"mmdet", "3.1.0"}, {"mmcv", "2.1.0"}}, "mmdet", "mmcv", "E1"},
      {{{"mmsegmentation", "0.30.0"}, {"mmcv", "2.0.1"}}, "mmsegmentation", "mmcv", "E1"},
      {{{"torch", "2.5.1+cu124"}, {"torchvision", "0.20.1"}}, "", "", ""},
      {{{"torch", "2.5.1+cu124"}, {"torchvision", "0.19.0"}}, "torch", "torchvision", "I18"},
      {{{"torch-cuda", "13.0"}, {"nvidia-driver", "570.86.15"}}, "torch-cuda", "nvidia-driver", "I6"},
      {{{"torch-cuda", "12.8"}, {"nvidia-driver", "535.104.05"}}, "", "", ""},
      {{{"torch-gcu", "1.10.0+2.5.136"}, {"torch", "2.1.0"}, {"python", "3.8.10"}}, "torch-gcu", "torch", "D7"},
      {{{"torch-gcu", "1.10.0+2.5.136"}, {"torch", "1.10.0"}, {"python", "3.11.2"}}, "torch-gcu", "python", "D7"},
      {{{"torch-gcu", "2.6.0"}, {"torch", "2.6.0+cpu"}, {"python", "3.10.4"}, {"card-gcu-2", "1"}}, "", "", ""},
      {{{"torch-gcu", "2.6.0"}, {"torch", "2.9.0"}}, "torch-gcu", "torch", "D7"},
      {{{"torch-gcu", "2.6.0"}, {"card-gcu-1", "1"}}, "card-gcu-1", "torch-gcu", "D7"},
      {{{"torch-npu", "2.1.0.post3"}, {"torch", "2.3.0"}}, "torch-npu", "torch", "D7"},
  };
  for (const Row& row : rows) {
    const Comparison comparison = ComparePairs(row.installed);
    if (*row.package == '\0') {
      EXPECT_TRUE(comparison.mismatches.empty());
      EXPECT_GT(comparison.compared, 0);
      continue;
    }
    ASSERT_EQ(comparison.mismatches.size(), 1U) << row.package;
    EXPECT_EQ(comparison.mismatches[0].package, row.package);
    EXPECT_EQ(comparison.mismatches[0].other, row.other);
    EXPECT_EQ(comparison.mismatches[0].row, row.row);
  }
}

TEST(VersionPairs, OfTheTableCanAllBeUnderstood) {
  for (const VersionPair& pair : VersionPairs()) {
    EXPECT_TRUE(VersionFits("1.0", pair.when).has_value()) << pair.package << " " << pair.when;
    if (std::string_view(pair.wanted) != "=") {
      EXPECT_TRUE(VersionFits("1.0", pair.wanted).has_value()) << pair.wanted;
    }
    EXPECT_NE(*pair.row, '\0');
  }
}

TEST(Requirements, OfAPackageAreComparedWithWhatIsThere) {
  const Installed installed = {{"torchvision", "0.20.0"}, {"torch", "2.6.0"}, {"numpy", "1.26.0"}};
  const Comparison comparison = CompareRequirements(
      "torchvision",
      {"torch==2.5.0", "numpy", "numpy (>=1.17,<3.0)", "Pillow!=8.3.*", "scipy>=1 ; extra == 'x'", "torch[x]>=9"},
      installed);
  EXPECT_EQ(comparison.compared, 2);
  ASSERT_EQ(comparison.mismatches.size(), 1U);
  EXPECT_EQ(comparison.mismatches[0].wanted, "==2.5.0");
}

}  // namespace
}  // namespace fulldeck::doctor
