#include "job/cards/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace fulldeck::job {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> Range(int first, int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

device::Card MakeCard(int index, std::optional<int> node) {
  device::Card card;
  card.kind = "gcu";
  card.index = index;
  card.serial = "W" + std::to_string(index);
  card.numa_node = node;
  return card;
}

// Eight cards, four on each of two NUMA nodes with 16 CPUs.
PlacementRequest Server(int ranks) {
  PlacementRequest request;
  request.host.cpus = Range(0, 32);
  request.host.nodes = {{0, Range(0, 16)}, {1, Range(16, 16)}};
  for (int i = 0; i < 8; ++i) request.cards.push_back(MakeCard(i, i / 4));
  request.ranks = ranks;
  return request;
}

TEST(Placement, GivesEachOfEightRanksItsOwnCardAndCpusOfThatCardsNode) {
  const auto placed = Place(Server(8));
  ASSERT_TRUE(placed.ok());
  std::set<std::size_t> cards;
  std::set<int> cpus;
  for (const RankPlacement& rank : *placed) {
    cards.insert(rank.card.value());
    cpus.insert(rank.cpus.begin(), rank.cpus.end());
    EXPECT_EQ(rank.cpus.size(), 4U);
    EXPECT_EQ(rank.threads, 4);
    for (const int cpu : rank.cpus) EXPECT_EQ(cpu / 16, rank.rank / 4);
  }
  EXPECT_EQ(cards.size(), 8U);
  EXPECT_EQ(cpus.size(), 32U) << "processors were given out twice or not at all";
}

TEST(Placement, UsesTheWholeNodeForFewRanks) {
  const auto placed = Place(Server(2));
  ASSERT_TRUE(placed.ok());
  EXPECT_THAT((*placed)[0].cpus, testing::ElementsAreArray(Range(0, 8)));
  EXPECT_THAT((*placed)[1].cpus, testing::ElementsAreArray(Range(8, 8)));
}

TEST(Placement, RefusesMoreRanksThanCardsAndNamesBothWaysOut) {
  const auto placed = Place(Server(9));
  ASSERT_FALSE(placed.ok());
  EXPECT_THAT(placed.error().message, HasSubstr("9 ranks were asked for and there are 8 cards"));
  EXPECT_THAT(placed.error().message, HasSubstr("--share-cards"));
  EXPECT_THAT(placed.error().message, HasSubstr("--devices cpu"));
}

TEST(Placement, SharesCardsWhenThatIsRequested) {
  PlacementRequest request = Server(16);
  request.share_cards = true;
  const auto placed = Place(request);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ((*placed)[0].card, 0U);
  EXPECT_EQ((*placed)[8].card, 0U);
  EXPECT_EQ((*placed)[15].card, 7U);
  EXPECT_EQ((*placed)[15].cpus.size(), 2U);
}

TEST(Placement, RefusesOneCardThatIsCountedTwice) {
  PlacementRequest request = Server(8);
  request.cards[5].serial = request.cards[2].serial;
  const auto placed = Place(request);
  ASSERT_FALSE(placed.ok());
  EXPECT_THAT(placed.error().message, HasSubstr("gcu 2 and gcu 5 have the same serial W2"));
}

TEST(Placement, RefusesACardThatDroppedOffTheBus) {
  PlacementRequest request = Server(8);
  request.cards[6].present = false;
  const auto placed = Place(request);
  ASSERT_FALSE(placed.ok());
  EXPECT_THAT(placed.error().message, HasSubstr("gcu 6 has dropped off the bus"));
}

TEST(Placement, PlacesCardsWithoutSerialsAlthoughTheyCannotBeDistinguished) {
  PlacementRequest request = Server(2);
  for (device::Card& card : request.cards) card.serial.reset();
  EXPECT_TRUE(Place(request).ok());
}

TEST(Placement, PutsAnyNumberOfRanksOnAHostWithoutCards) {
  PlacementRequest request;
  request.host.cpus = Range(0, 2);
  request.host.nodes = {{0, Range(0, 2)}};
  request.ranks = 8;
  const auto placed = Place(request);
  ASSERT_TRUE(placed.ok());
  for (const RankPlacement& rank : *placed) {
    EXPECT_FALSE(rank.card.has_value());
    EXPECT_EQ(rank.threads, 1);
    EXPECT_THAT(rank.cpus, ElementsAre(rank.rank % 2));
  }
}

TEST(Placement, SpreadsHostRanksOverTheNodes) {
  PlacementRequest request = Server(4);
  request.cards.clear();
  const auto placed = Place(request);
  ASSERT_TRUE(placed.ok());
  EXPECT_THAT((*placed)[0].cpus, testing::ElementsAreArray(Range(0, 8)));
  EXPECT_THAT((*placed)[3].cpus, testing::ElementsAreArray(Range(24, 8)));
}

TEST(Placement, GivesCardsOfUnknownNodeAShareOfAllCpus) {
  PlacementRequest request = Server(8);
  for (device::Card& card : request.cards) card.numa_node.reset();
  const auto placed = Place(request);
  ASSERT_TRUE(placed.ok());
  EXPECT_THAT((*placed)[7].cpus, ElementsAre(28, 29, 30, 31));
}

TEST(Placement, WorksWhereTheKernelReportsNoCpus) {
  PlacementRequest request;
  request.ranks = 2;
  const auto placed = Place(request);
  ASSERT_TRUE(placed.ok());
  EXPECT_TRUE((*placed)[1].cpus.empty());
  EXPECT_EQ((*placed)[1].threads, 1);
}

TEST(Placement, RefusesZeroRanks) {
  const auto placed = Place(Server(0));
  ASSERT_FALSE(placed.ok());
  EXPECT_THAT(placed.error().message, HasSubstr("at least 1"));
}

}  // namespace
}  // namespace fulldeck::job
