#include "job/cards/card_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "job/cards/device_choice.h"
#include "job/cards/placement.h"

namespace fulldeck::job {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// `visible`: card numbers in torch's order; absent: all.
device::VendorReport Vendor(const std::string& name, const std::string& kind, const std::string& torch_type, int count,
                            std::optional<std::vector<int>> visible = std::nullopt) {
  device::VendorReport report;
  report.vendor = name;
  report.title = name;
  for (int i = 0; i < count; ++i) {
    device::Card card;
    card.vendor = name;
    card.kind = kind;
    card.index = i;
    card.serial = name + std::to_string(i);
    card.torch_type = torch_type;
    card.visible = !visible.has_value();
    if (!visible) card.torch_device = torch_type + ":" + std::to_string(i);
    report.cards.push_back(card);
  }
  if (visible) {
    report.visibility = "SOME_VISIBLE_DEVICES=…";
    for (std::size_t i = 0; i < visible->size(); ++i) {
      device::Card& card = report.cards[static_cast<std::size_t>((*visible)[i])];
      card.visible = true;
      card.torch_device = torch_type + ":" + std::to_string(i);
    }
  }
  return report;
}

device::Inventory Machine(std::vector<device::VendorReport> vendors) {
  device::Inventory inventory;
  inventory.vendors = std::move(vendors);
  return inventory;
}

device::Inventory EightGcus() {
  return Machine({Vendor("enflame", "gcu", "gcu", 8)});
}

constexpr int kCpus = 16;

base::Result<CardSelection> Select(std::string_view line, const device::Inventory& inventory, int launcher = 0,
                                   int launchers = 1, LaunchStyle style = LaunchStyle::kFulldeck) {
  std::vector<std::string> words;
  for (const std::string_view word : base::Split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  words.emplace_back("t.py");
  const auto flags = ParseLaunchFlags(style, words, {});
  EXPECT_TRUE(flags.ok()) << line << ": " << (flags.ok() ? "" : flags.error().message);
  if (!flags) return flags.error();
  return SelectCards(*flags, inventory, kCpus, launcher, launchers);
}

std::vector<int> Indices(const CardSelection& selection) {
  std::vector<int> indices;
  for (const device::Card& card : selection.cards) indices.push_back(card.index);
  return indices;
}

std::string AllNotes(const CardSelection& selection) {
  return base::Join(selection.notes, "\n");
}

TEST(CardSelection, ResolvesEveryFormOnAServerWithEightCards) {
  struct Row {
    const char* line;
    std::vector<int> cards;
    int ranks;
  };
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const Row rows[] = {
      {"", all, 8},
      {"--devices auto", all, 8},
      {"--devices gcu", all, 8},
      {"--devices enflame", all, 8},
      {"--devices gpu", all, 8},
      {"--devices GCU", all, 8},
      {"--devices 2", {0, 1}, 2},
      {"--devices gcu:2", {0, 1}, 2},
      {"--devices 3,", {3}, 1},
      {"--devices 0,2,3", {0, 2, 3}, 3},
      {"--devices 3,0", {3, 0}, 2},
      {"--devices 4-7", {4, 5, 6, 7}, 4},
      {"--devices gcu:0,2", {0, 2}, 2},
      {"--devices gcu:5,", {5}, 1},
      {"--nproc-per-node auto", all, 8},
      {"--nproc-per-node gpu", all, 8},
      {"--nproc-per-node gcu", all, 8},
      {"--nproc-per-node 2", all, 2},
      {"--nproc-per-node 9", all, 9},
      {"--devices 4-7 --nproc-per-node gpu", {4, 5, 6, 7}, 4},
      {"--devices 0,1 --nproc-per-node 1", {0, 1}, 1},
  };
  for (const Row& row : rows) {
    const auto selection = Select(row.line, EightGcus());
    ASSERT_TRUE(selection.ok()) << row.line << ": " << selection.error().message;
    EXPECT_EQ(Indices(*selection), row.cards) << row.line;
    EXPECT_EQ(selection->ranks, row.ranks) << row.line;
    EXPECT_FALSE(selection->cpu_requested) << row.line;
  }
}

TEST(CardSelection, PutsRanksOnTheCpu) {
  struct Row {
    const char* line;
    int ranks;
  };
  const Row rows[] = {{"--devices cpu", 1},
                      {"--devices cpu --nproc-per-node 4", 4},
                      {"--devices cpu --nproc-per-node auto", 1},
                      {"--devices cpu --nproc-per-node cpu", kCpus},
                      {"--nproc-per-node cpu", kCpus}};
  for (const Row& row : rows) {
    const auto selection = Select(row.line, EightGcus());
    ASSERT_TRUE(selection.ok()) << row.line;
    EXPECT_THAT(selection->cards, IsEmpty()) << row.line;
    EXPECT_EQ(selection->ranks, row.ranks) << row.line;
    EXPECT_TRUE(selection->cpu_requested) << row.line;
  }
  EXPECT_EQ(Select("--nproc-per-node cpu", EightGcus(), 1, 4)->ranks, kCpus / 4);
}

TEST(CardSelection, StartsOneRankOnAMachineWithoutCards) {
  const auto selection = Select("", Machine({}));
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(selection->ranks, 1);
  EXPECT_TRUE(selection->cpu_requested);
  EXPECT_EQ(Select("--nproc-per-node 4", Machine({}))->ranks, 4);
  EXPECT_EQ(Select("", Machine({}), 0, 1, LaunchStyle::kTorchrun)->ranks, 1);
}

TEST(CardSelection, TakesTheVisibleCardsInTorchsOrder) {
  const device::Inventory machine = Machine({Vendor("enflame", "gcu", "gcu", 8, std::vector<int>{6, 2, 4})});
  const auto selection = Select("", machine);
  ASSERT_TRUE(selection.ok());
  EXPECT_THAT(Indices(*selection), ElementsAre(6, 2, 4));
  EXPECT_THAT(AllNotes(*selection), HasSubstr("SOME_VISIBLE_DEVICES=… hides 5 of 8 enflame cards"));
  EXPECT_THAT(Indices(*Select("--devices 2", machine)), ElementsAre(6, 2));
  EXPECT_THAT(Indices(*Select("--devices 4,6", machine)), ElementsAre(4, 6));
  EXPECT_THAT(Select("--devices 0,2", machine).error().message, HasSubstr("gcu 0 is hidden by SOME_VISIBLE_DEVICES"));
}

TEST(CardSelection, ReportsAListThatHidesEveryCard) {
  const device::Inventory machine = Machine({Vendor("enflame", "gcu", "gcu", 8, std::vector<int>{})});
  const auto selection = Select("", machine);
  ASSERT_TRUE(selection.ok());
  EXPECT_TRUE(selection->cpu_requested);
  EXPECT_EQ(selection->ranks, 1);
  EXPECT_THAT(AllNotes(*selection), HasSubstr("hides 8 of 8"));
  EXPECT_THAT(Select("--nproc-per-node gpu", machine).error().message, HasSubstr("8 of them hidden by"));
}

TEST(CardSelection, ReportsAVendorThatCouldNotBeQueried) {
  device::VendorReport broken;
  broken.vendor = "nvidia";
  broken.title = "NVIDIA";
  broken.failures = {"libnvidia-ml.so.1 hung"};
  const auto selection = Select("", Machine({broken}));
  ASSERT_TRUE(selection.ok());
  EXPECT_THAT(AllNotes(*selection), HasSubstr("NVIDIA: libnvidia-ml.so.1 hung"));
}

TEST(CardSelection, RefusesWhatIsNotThereAndListsWhatIs) {
  struct Row {
    const char* line;
    const char* message;
  };
  const Row rows[] = {
      {"--devices cuda", "--devices cuda asks for cards, and there are 8 gcu of enflame"},
      {"--nproc-per-node cuda", "--nproc-per-node cuda asks for cards, and there are 8 gcu of enflame"},
      {"--devices 9", "--devices 9 asks for 9 cards, and 8 are visible"},
      {"--devices 8,", "there is no card 8; there are 8 gcu of enflame"},
      {"--devices 0,12", "there is no card 12"},
      {"--devices npu:0,", "there is no npu card 0; there are 8 gcu of enflame"},
      {"--devices 0,1 --nproc-per-node cuda", "there is no cuda card 0"},
      {"--devices gcu --nproc-per-node npu", "--nproc-per-node npu contradicts --devices gcu, which is gcu 0"},
  };
  for (const Row& row : rows) {
    const auto selection = Select(row.line, EightGcus());
    ASSERT_FALSE(selection.ok()) << row.line;
    EXPECT_THAT(selection.error().message, HasSubstr(row.message)) << row.line;
  }
  for (const char* line : {"--devices gcu", "--nproc-per-node gpu", "--devices 2", "--devices 0,"}) {
    const auto selection = Select(line, Machine({}));
    ASSERT_FALSE(selection.ok()) << line;
    EXPECT_THAT(selection.error().message, HasSubstr("no card was found")) << line;
  }
}

TEST(CardSelection, WantsOneKindNamedWhereThereAreSeveral) {
  const device::Inventory machine = Machine({Vendor("nvidia", "cuda", "cuda", 2), Vendor("enflame", "gcu", "gcu", 4)});
  EXPECT_THAT(Select("", machine).error().message, HasSubstr("--devices cuda or --devices gcu"));
  EXPECT_THAT(Select("--nproc-per-node gpu", machine).error().message, HasSubstr("--devices cuda or --devices gcu"));
  EXPECT_THAT(Select("--devices 0,1", machine).error().message, HasSubstr("cuda:0"));
  EXPECT_THAT(Indices(*Select("--devices gcu", machine)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Indices(*Select("--nproc-per-node cuda", machine)), ElementsAre(0, 1));
  EXPECT_THAT(Indices(*Select("--devices gcu:1,3", machine)), ElementsAre(1, 3));
  EXPECT_THAT(Indices(*Select("--devices 3,", machine)), ElementsAre(3)) << "only one kind has a card 3";
  // Two vendors of one kind, and two generations of one vendor.
  const device::Inventory same = Machine({Vendor("nvidia", "cuda", "cuda", 1), Vendor("metax", "cuda", "cuda", 1)});
  EXPECT_THAT(Select("--devices cuda", same).error().message, HasSubstr("--devices nvidia or --devices metax"));
  device::VendorReport mixed = Vendor("enflame", "gcu", "gcu", 2);
  mixed.cards[1].torch_type = "xla";
  mixed.cards[1].torch_device = "xla:0";
  EXPECT_THAT(Select("", Machine({mixed})).error().message, HasSubstr("--devices xla"));
  EXPECT_THAT(Indices(*Select("--devices xla", Machine({mixed}))), ElementsAre(1));
}

TEST(CardSelection, RefusesAListThatCannotBeRead) {
  device::Inventory machine = EightGcus();
  machine.vendors[0].bad_visibility = "TOPS_VISIBLE_DEVICES='x': 'x' names no card of this machine.";
  EXPECT_THAT(Select("", machine).error().message, HasSubstr("'x' names no card"));
  EXPECT_TRUE(Select("--devices cpu", machine).ok());
}

TEST(CardSelection, DividesTheCardsAmongTheLaunchersOfANode) {
  struct Row {
    const char* line;
    int launcher;
    int launchers;
    std::vector<int> cards;
  };
  const Row rows[] = {
      {"", 0, 2, {0, 1, 2, 3}},
      {"", 1, 2, {4, 5, 6, 7}},
      {"", 5, 8, {5}},
      {"", 0, 3, {0, 1}},
      {"", 2, 3, {5, 6, 7}},
      {"--devices 0,2,4,6", 1, 2, {4, 6}},
      {"--devices 4", 1, 2, {2, 3}},
      {"--share-cards", 9, 16, {1}},
  };
  for (const Row& row : rows) {
    const auto selection = Select(row.line, EightGcus(), row.launcher, row.launchers);
    ASSERT_TRUE(selection.ok()) << row.line << ": " << selection.error().message;
    EXPECT_EQ(Indices(*selection), row.cards) << row.line << " " << row.launcher << "/" << row.launchers;
    EXPECT_EQ(selection->ranks, static_cast<int>(row.cards.size()));
    EXPECT_THAT(AllNotes(*selection), HasSubstr("its share of"));
  }
  EXPECT_THAT(Select("", EightGcus(), 9, 16).error().message, HasSubstr("16 launchers on this host divide 8 cards"));
}

TEST(CardSelection, RefusesEightRanksInEachOfEightLaunchers) {
  const auto classic = Select("--nproc-per-node 8", EightGcus(), 3, 8);
  ASSERT_FALSE(classic.ok());
  EXPECT_THAT(classic.error().message, HasSubstr("is 64 ranks, and each launcher's share is 1 card"));
  EXPECT_THAT(classic.error().message, HasSubstr("--ntasks-per-node=1"));
  EXPECT_FALSE(Select("--nproc-per-node 8", EightGcus(), 3, 8, LaunchStyle::kTorchrun).ok());
  EXPECT_TRUE(Select("--nproc-per-node 8 --share-cards", EightGcus(), 3, 8).ok());
  EXPECT_TRUE(Select("--nproc-per-node 4", EightGcus(), 1, 2).ok());
}

TEST(CardSelection, KeepsADroppedCardSoThatPlacementRefusesIt) {
  device::Inventory machine = EightGcus();
  machine.vendors[0].cards[3].present = false;
  for (const char* line : {"", "--devices 0,3", "--nproc-per-node 8"}) {
    const auto selection = Select(line, machine);
    ASSERT_TRUE(selection.ok()) << line;
    const auto placed = Place({selection->cards, {}, selection->ranks, false});
    ASSERT_FALSE(placed.ok()) << line;
    EXPECT_THAT(placed.error().message, HasSubstr("gcu 3 has dropped off the bus"));
  }
  const auto fewer = Select("--nproc-per-node 7", machine);
  ASSERT_TRUE(fewer.ok());
  EXPECT_THAT(Indices(*fewer), ElementsAre(0, 1, 2, 4, 5, 6, 7));
  EXPECT_THAT(AllNotes(*fewer), HasSubstr("gcu 3 has dropped off the bus and is left out; 7 ranks run on the others"));
}

TEST(CardSelection, NotesWhatWouldBeOverlooked) {
  EXPECT_THAT(AllNotes(*Select("--devices 0,1,2 --nproc-per-node 1", EightGcus())), HasSubstr("2 stay idle"));
  EXPECT_THAT(AllNotes(*Select("--devices 2 --nproc-per-node 1", EightGcus())), HasSubstr("one stays idle"));
  EXPECT_THAT(AllNotes(*Select("--devices 2 -r 0:1,5:3", EightGcus())),
              HasSubstr("--redirects names local rank 5, and this host has 2 ranks"));
  EXPECT_THAT(AllNotes(*Select("--devices cpu --local-ranks-filter 0,1", EightGcus())),
              HasSubstr("--local-ranks-filter names local rank 1, and this host has 1 rank"));
  EXPECT_THAT(Select("-t 0:3,7:3", EightGcus())->notes, IsEmpty());
}

TEST(DeviceChoice, ReadsEveryForm) {
  EXPECT_TRUE(ParseDeviceChoice("auto")->is_auto());
  EXPECT_TRUE(ParseDeviceChoice(" CPU ")->cpu);
  EXPECT_EQ(ParseDeviceChoice("nvidia")->kind, "nvidia");
  EXPECT_EQ(ParseDeviceChoice("8")->count, 8);
  EXPECT_THAT(ParseDeviceChoice("3,")->indices, ElementsAre(3));
  EXPECT_THAT(ParseDeviceChoice("0-2, 5")->indices, ElementsAre(0, 1, 2, 5));
  EXPECT_EQ(ParseDeviceChoice("npu:4")->count, 4);
  for (const char* bad :
       {"", " ", "0", "gcu:", "gcu:0", "gcu:x", ":1", "1,,2", "1;2", "99999", "1,-2", "auto:1", "cpu:1"}) {
    EXPECT_FALSE(ParseDeviceChoice(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace fulldeck::job
