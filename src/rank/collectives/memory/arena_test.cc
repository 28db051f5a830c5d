#include "collectives/memory/arena.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/memory/segment_layout.h"
#include "collectives/testing/problem.h"

namespace fulldeck::collectives {
namespace {

constexpr std::uint64_t kBegin = 3 * kHugePage;
constexpr std::uint64_t kEnd = 64 * kHugePage;

TEST(Arena, HandsOutStretchesThatDoNotTouchAndBeginOnLines) {
  Arena arena(kBegin, kEnd);
  std::uint64_t behind = kBegin;
  for (const std::uint64_t bytes : {1, 64, 65, 4095}) {
    const std::optional<std::uint64_t> offset = arena.Take(bytes);
    ASSERT_TRUE(offset);
    EXPECT_EQ(*offset % 64, 0u);
    EXPECT_GE(*offset, behind);
    behind = *offset + bytes;
  }
}

TEST(Arena, PutsLongStretchesOnHugePages) {
  Arena arena(kBegin, kEnd);
  ASSERT_TRUE(arena.Take(100));
  const std::optional<std::uint64_t> offset = arena.Take(kHugePage);
  ASSERT_TRUE(offset);
  EXPECT_EQ(*offset % kHugePage, 0u);
  const std::optional<std::uint64_t> small = arena.Take(100);
  ASSERT_TRUE(small);
  EXPECT_LT(*small, *offset) << "what lies before the boundary is still used";
}

TEST(Arena, GivesNothingWhenThereIsNoRoom) {
  Arena arena(kBegin, kEnd);
  EXPECT_FALSE(arena.Take(kEnd - kBegin + 1));
  EXPECT_FALSE(arena.Take(~std::uint64_t{0}));
  EXPECT_FALSE(arena.Take(~std::uint64_t{0} - 62));
  const std::optional<std::uint64_t> all = arena.Take(kEnd - kBegin);
  ASSERT_TRUE(all);
  EXPECT_FALSE(arena.Take(1));
  EXPECT_FALSE(arena.Take(0)) << "even nothing has a place of its own";
  EXPECT_TRUE(arena.GiveBack(*all));
  EXPECT_TRUE(arena.Take(1));
  Arena none(kBegin, kBegin);
  EXPECT_FALSE(none.Take(1));
}

TEST(Arena, KnowsWhatItGave) {
  Arena arena(kBegin, kEnd);
  const std::uint64_t first = *arena.Take(1000);
  const std::uint64_t second = *arena.Take(1000);
  EXPECT_TRUE(arena.Holds(first, 1000));
  EXPECT_TRUE(arena.Holds(first + 10, 990));
  EXPECT_TRUE(arena.Holds(first, 1024)) << "up to the line";
  EXPECT_FALSE(arena.Holds(first, 1025)) << "across two";
  EXPECT_FALSE(arena.Holds(first - 1, 1));
  EXPECT_FALSE(arena.Holds(first, ~std::uint64_t{0}));
  EXPECT_FALSE(arena.Holds(second + 5000, 1));
  EXPECT_FALSE(arena.GiveBack(first + 64));
  EXPECT_TRUE(arena.GiveBack(first));
  EXPECT_FALSE(arena.GiveBack(first)) << "once";
  EXPECT_FALSE(arena.Holds(first, 1));
}

TEST(Arena, MergesWhatComesBackInAnyOrder) {
  testing::Draws draws(5);
  Arena arena(kBegin, kEnd);
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<std::uint64_t> taken;
    while (true) {
      const std::optional<std::uint64_t> offset = arena.Take(1 + draws.Below(8 * kHugePage));
      if (!offset) break;
      taken.push_back(*offset);
    }
    EXPECT_GT(taken.size(), 5u);
    while (!taken.empty()) {
      const std::size_t which = draws.Below(taken.size());
      EXPECT_TRUE(arena.GiveBack(taken[which]));
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const std::optional<std::uint64_t> all = arena.Take(kEnd - kBegin);
    ASSERT_TRUE(all) << "all of it is one stretch again";
    EXPECT_TRUE(arena.GiveBack(*all));
  }
}

}  // namespace
}  // namespace fulldeck::collectives
