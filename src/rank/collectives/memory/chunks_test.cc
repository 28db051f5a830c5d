#include "collectives/memory/chunks.h"

#include <gtest/gtest.h>

namespace fulldeck::collectives {
namespace {

// Shares and chunks of any length cover everything once, in order, each on its own cache lines.
TEST(Ranges, SharesCoverAllOnceAndBeginOnLines) {
  for (const std::uint64_t element : {1, 2, 4, 8}) {
    for (const int shares : {1, 2, 3, 7, 8, 256}) {
      for (const std::uint64_t count : {0, 1, 7, 63, 64, 65, 1000, 4096, 99999}) {
        std::uint64_t next = 0;
        for (int index = 0; index < shares; ++index) {
          const Range share = ShareOf(count, element, index, shares);
          ASSERT_EQ(share.begin, next);
          ASSERT_TRUE(share.count == 0 || share.begin * element % kRangeAlignment == 0);
          ASSERT_LT(share.count * element,
                    count * element / static_cast<std::uint64_t>(shares) + element + kRangeAlignment);
          next += share.count;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Ranges, ChunksCoverAllOnceAndFitTheirSlots) {
  for (const std::uint64_t element : {1, 2, 4, 8}) {
    for (const std::uint64_t chunk : {64, 128, 4096, 12288, 1 << 20}) {
      for (const std::uint64_t count : {0, 1, 15, 64, 511, 512, 513, 4096, 4097, 99999}) {
        const Chunks chunks(count, element, chunk);
        ASSERT_GE(chunks.number(), 1u) << "there is always a meeting";
        std::uint64_t next = 0;
        for (std::uint64_t index = 0; index < chunks.number(); ++index) {
          const Range range = chunks.At(index);
          ASSERT_EQ(range.begin, next);
          ASSERT_LE(range.count * element, chunk);
          ASSERT_TRUE(count == 0 || range.count > 0)
              << "no piece is for nothing: " << count << " × " << element << " in " << chunk;
          next += range.count;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Ranges, NumbersBeyond32BitsAreRight) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 40) + 17;
  const Chunks chunks(kCount, 1, 1 << 20);
  EXPECT_EQ(chunks.number(), (std::uint64_t{1} << 20) + 1);
  const Range last = chunks.At(chunks.number() - 1);
  EXPECT_EQ(last.begin + last.count, kCount);
  const Range share = ShareOf(kCount, 1, 255, 256);
  EXPECT_EQ(share.begin + share.count, kCount);
}

}  // namespace
}  // namespace fulldeck::collectives
