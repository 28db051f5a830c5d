// The layout of the segment that each member contributes:
//
//   slots      depth × chunk_bytes        this member's input, one chunk each
//   results    depth × result_bytes       what this member reduced of a chunk
//   partials   depth × 2 × result_bytes   its partial result for the next NUMA node, in accumulators (several levels)
//   fetched    depth × result_bytes       what it copied from the last NUMA node (several levels)
//   rings      size × kMessageRingBytes   what it sends to each rank
//   arena      the rest                   memory of fulldeck_allocate
#pragma once

#include <cstdint>

namespace fulldeck::collectives {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kHugePage = 2 * 1024 * 1024;

struct SegmentLayout {
  std::uint64_t chunk_bytes = 0;
  std::uint64_t result_bytes = 0;
  int depth = 0;  // number of slots
  std::uint64_t slots = 0;
  std::uint64_t results = 0;
  std::uint64_t partials = 0;
  std::uint64_t fetched = 0;
  std::uint64_t rings = 0;
  std::uint64_t arena = 0;  // offset of the arena: everything before it has the same layout on all members

  std::uint64_t Slot(int slot) const { return slots + static_cast<std::uint64_t>(slot) * chunk_bytes; }
  std::uint64_t Result(int slot) const { return results + static_cast<std::uint64_t>(slot) * result_bytes; }
  std::uint64_t Partial(int slot) const { return partials + static_cast<std::uint64_t>(slot) * 2 * result_bytes; }
  std::uint64_t Fetched(int slot) const { return fetched + static_cast<std::uint64_t>(slot) * result_bytes; }
};

// `sharers`: the smallest number of members that share the reduction of a chunk: the size, or the size of the smallest
// NUMA node.
SegmentLayout LayoutOf(int size, int depth, std::uint64_t chunk_bytes, int sharers);

// A slot is read up to `levels` barriers after it was written. With background copies from and to cards, it is written
// one barrier earlier and read one barrier later.
constexpr int SlotsForMemory(int levels) {
  return levels + 1;
}
constexpr int SlotsForCards(int levels) {
  return levels + 3;
}

// The slot of chunk number p of a call. The first chunk uses slot 0 or 1, whichever the last chunk of the previous call
// did not use, because a slow member may still be reading that one. The other chunks start after the call's first
// barrier, when all members have left the previous call.
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
