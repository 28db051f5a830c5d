#include "collectives/memory/segment_layout.h"

#include "collectives/memory/slices.h"
#include "collectives/messages/messages.h"

namespace fulldeck::collectives {

SegmentLayout LayoutOf(int size, int depth, std::uint64_t piece_bytes, int sharers) {
  SegmentLayout layout;
  layout.piece_bytes = piece_bytes;
  // A share of a piece is rounded up to whole lines, so the first shares can be a line longer than the even part.
  layout.result_bytes = RoundUp(piece_bytes / sharers + kSliceAlignment, kPage);
  layout.depth = depth;
  layout.slots = 0;
  layout.results = layout.slots + depth * piece_bytes;
  layout.partials = layout.results + depth * layout.result_bytes;
  layout.fetched = layout.partials + depth * 2 * layout.result_bytes;
  layout.rings = RoundUp(layout.fetched + depth * layout.result_bytes, kPage);
  layout.arena = RoundUp(layout.rings + size * kMessageRingBytes, kHugePage);
  return layout;
}

}  // namespace fulldeck::collectives
