#include "collectives/memory/segment_layout.h"

#include <gtest/gtest.h>

#include "collectives/memory/chunks.h"
#include "collectives/messages/messages.h"
#include "collectives/node_levels.h"

namespace fulldeck::collectives {
namespace {

TEST(SegmentLayout, PlacesDoNotOverlapAndHaveRoomForTheLargestShare) {
  for (const int size : {1, 2, 3, 8, 9, 256}) {
    for (const int sharers : {1, size}) {
      for (const std::uint64_t chunk : {std::uint64_t{4096}, std::uint64_t{1} << 16, std::uint64_t{1} << 30}) {
        const SegmentLayout layout = LayoutOf(size, SlotsForCards(kMaxLevels), chunk, sharers);
        const int last = layout.depth - 1;
        EXPECT_LE(layout.Slot(last) + chunk, layout.results);
        EXPECT_LE(layout.Result(last) + layout.result_bytes, layout.partials);
        EXPECT_LE(layout.Partial(last) + 2 * layout.result_bytes, layout.fetched);
        EXPECT_LE(layout.Fetched(last) + layout.result_bytes, layout.rings);
        EXPECT_LE(layout.rings + static_cast<std::uint64_t>(size) * kMessageRingBytes, layout.arena);
        EXPECT_EQ(layout.arena % kHugePage, 0u);
        EXPECT_EQ(layout.rings % kPage, 0u);
        for (const std::uint64_t element : {1, 2, 4, 8}) {
          EXPECT_LE(ShareOf(chunk / element, element, 0, sharers).count * element, layout.result_bytes);
        }
      }
    }
  }
}

// Members may be one barrier apart. A slot must not be written before all members have read it.
TEST(SlotOrder, NeverTakesASlotThatIsStillRead) {
  for (int nodes = 1; nodes <= kMaxLevels; ++nodes) {
    for (const bool cards : {false, true}) {
      // The longest path: one level per node, and one more to bring the result back; flat: one.
      const std::uint64_t read_last = static_cast<std::uint64_t>(nodes);
      const int depth = cards ? SlotsForCards(nodes) : SlotsForMemory(nodes);
      for (const int first : {0, 1}) {
        const SlotOrder order(first, depth);
        EXPECT_EQ(order.At(0), first);
        for (std::uint64_t chunk = 0; chunk < 40; ++chunk) {
          ASSERT_GE(order.At(chunk), 0);
          ASSERT_LT(order.At(chunk), depth);
          // Written at stage `later` (one stage early with cards), read until stage chunk + read_last (one stage late
          // with cards).
          for (std::uint64_t later = chunk + 1; later - (cards ? 1 : 0) <= chunk + read_last + (cards ? 1 : 0);
               ++later) {
            ASSERT_NE(order.At(later), order.At(chunk)) << nodes << " nodes, pieces " << chunk << " and " << later;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fulldeck::collectives
