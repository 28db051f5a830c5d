// What lies where in the segment that each member brings:
//
//   slots      depth × chunk_bytes        this member's input, one chunk each
//   results    depth × result_bytes       what this member reduced of a chunk
//   partials   depth × 2 × result_bytes   what it hands on to the next NUMA node, in accumulators (two levels only)
//   fetched    depth × result_bytes       what it brought over from the last NUMA node (two levels only)
//   rings      size × kMessageRingBytes   what it sends to each rank
//   arena      the rest                   memory of fulldeck_allocate
//
#pragma once

#include <cstdint>

namespace fulldeck::collectives {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kHugePage = 2 * 1024 * 1024;

struct SegmentLayout {
  std::uint64_t chunk_bytes = 0;
  std::uint64_t result_bytes = 0;
  int depth = 0;  // slots that there are
  std::uint64_t slots = 0;
  std::uint64_t results = 0;
  std::uint64_t partials = 0;
  std::uint64_t fetched = 0;
  std::uint64_t rings = 0;
  std::uint64_t arena = 0;  // offset of the arena: what comes before it is the same for all members

  std::uint64_t Slot(int slot) const { return slots + static_cast<std::uint64_t>(slot) * chunk_bytes; }
  std::uint64_t Result(int slot) const { return results + static_cast<std::uint64_t>(slot) * result_bytes; }
  std::uint64_t Partial(int slot) const { return partials + static_cast<std::uint64_t>(slot) * 2 * result_bytes; }
  std::uint64_t Fetched(int slot) const { return fetched + static_cast<std::uint64_t>(slot) * result_bytes; }
};

// `sharers`: the fewest members that share the reducing of a chunk: the size, or the size of the smallest NUMA node.
SegmentLayout LayoutOf(int size, int depth, std::uint64_t chunk_bytes, int sharers);

// A slot is read up to `levels` barriers after it was written. With copies from and to cards under way it is written a
// barrier early and read a barrier late.
constexpr int SlotsForMemory(int levels) {
  return levels + 1;
}
constexpr int SlotsForCards(int levels) {
  return levels + 3;
}

// Which slot chunk number p of a call goes through. The first one is 0 or 1 and not the one of the last chunk of the
// call before, since a slow member may still be reading that. The others come behind the call's first barrier, and then
// nobody is in the call before any more.
class SlotOrder {
 public:
  SlotOrder(int first, int depth) : first_(first), depth_(depth) {}
  int At(std::uint64_t chunk) const {
    const int turn = static_cast<int>(chunk % static_cast<std::uint64_t>(depth_));
    return turn > 1 ? turn : turn ^ first_;
  }

 private:
  int first_;
  int depth_;
};

}  // namespace fulldeck::collectives
