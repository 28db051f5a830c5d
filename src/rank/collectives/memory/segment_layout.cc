#include "collectives/memory/segment_layout.h"

#include "collectives/memory/chunks.h"
#include "collectives/messages/messages.h"

namespace fulldeck::collectives {

SegmentLayout LayoutOf(int size, int depth, std::uint64_t chunk_bytes, int sharers) {
  SegmentLayout layout;
  layout.chunk_bytes = chunk_bytes;
  // A share of a chunk is rounded up to whole cache lines, so the first shares can be one line longer than the average.
  layout.result_bytes = RoundUp(chunk_bytes / sharers + kRangeAlignment, kPage);
  layout.depth = depth;
  layout.slots = 0;
  layout.results = layout.slots + depth * chunk_bytes;
  layout.partials = layout.results + depth * layout.result_bytes;
  layout.fetched = layout.partials + depth * 2 * layout.result_bytes;
  layout.rings = RoundUp(layout.fetched + depth * layout.result_bytes, kPage);
  layout.arena = RoundUp(layout.rings + size * kMessageRingBytes, kHugePage);
  return layout;
}

}  // namespace fulldeck::collectives
