#include "collectives/memory/slices.h"

#include <gtest/gtest.h>

namespace fulldeck::collectives {
namespace {

// Shares and pieces of any length cover everything once, in order, on lines of their own.
TEST(Slices, SharesCoverAllOnceAndBeginOnLines) {
  for (const std::uint64_t element : {1, 2, 4, 8}) {
    for (const int shares : {1, 2, 3, 7, 8, 256}) {
      for (const std::uint64_t count : {0, 1, 7, 63, 64, 65, 1000, 4096, 99999}) {
        std::uint64_t next = 0;
        for (int index = 0; index < shares; ++index) {
          const Slice share = ShareOf(count, element, index, shares);
          ASSERT_EQ(share.begin, next);
          ASSERT_TRUE(share.count == 0 || share.begin * element % kSliceAlignment == 0);
          ASSERT_LT(share.count * element,
                    count * element / static_cast<std::uint64_t>(shares) + element + kSliceAlignment);
          next += share.count;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Slices, PiecesCoverAllOnceAndFitTheirSlots) {
  for (const std::uint64_t element : {1, 2, 4, 8}) {
    for (const std::uint64_t piece : {64, 128, 4096, 12288, 1 << 20}) {
      for (const std::uint64_t count : {0, 1, 15, 64, 511, 512, 513, 4096, 4097, 99999}) {
        const Pieces pieces(count, element, piece);
        ASSERT_GE(pieces.number(), 1u) << "there is always a meeting";
        std::uint64_t next = 0;
        for (std::uint64_t index = 0; index < pieces.number(); ++index) {
          const Slice slice = pieces.At(index);
          ASSERT_EQ(slice.begin, next);
          ASSERT_LE(slice.count * element, piece);
          ASSERT_TRUE(count == 0 || slice.count > 0)
              << "no piece is for nothing: " << count << " × " << element << " in " << piece;
          next += slice.count;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(Slices, NumbersBeyond32BitsAreRight) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 40) + 17;
  const Pieces pieces(kCount, 1, 1 << 20);
  EXPECT_EQ(pieces.number(), (std::uint64_t{1} << 20) + 1);
  const Slice last = pieces.At(pieces.number() - 1);
  EXPECT_EQ(last.begin + last.count, kCount);
  const Slice share = ShareOf(kCount, 1, 255, 256);
  EXPECT_EQ(share.begin + share.count, kCount);
}

}  // namespace
}  // namespace fulldeck::collectives
