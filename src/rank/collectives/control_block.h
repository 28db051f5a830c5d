// The memory in which the members of a group meet: made and filled in by rank 0, mapped by all. Only counters, flags
// and small records are in it; data goes through the members' own segments (segment_layout.h).
//
// There is no lock in it: a member can die between any two instructions. docs/collectives.md argues why the order of
// reads and writes is right on every processor; beside each word stands what it pairs with.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/max_group_size.h"
#include "collectives/messages/messages.h"

namespace fulldeck::collectives {

// Where the data of a call is, when it is not at an offset of the member's segment: in memory of its own, or on a card.
inline constexpr std::uint64_t kNotShared = ~std::uint64_t{0};
inline constexpr std::uint64_t kOnCard = ~std::uint64_t{1};
inline constexpr std::uint64_t kNothing = ~std::uint64_t{0};
inline constexpr int kCpuMaskWords = 64;
// Two lines: cpus fetch them in pairs.
inline constexpr std::size_t kLine = 128;

// Where all members wait for each other. Barrier number b (from 1) is over when `arrivals` has got to b × size.
struct Barrier {
  alignas(
      kLine) std::atomic<std::uint32_t> arrivals;  // add acq_rel: the last one to come has seen what all wrote before
  alignas(
      kLine) std::atomic<std::uint32_t> released;  // number of the last barrier that is over; stored by the last to
                                                   // come, pairs with the acquire load of those who wait. Futex word.
  std::atomic<std::uint32_t> sleepers;             // see waiting.h
};

// Why the group is of no more use. Written once, by the member that sets `state` from 0 to 1.
struct FailureRecord {
  alignas(kLine) std::atomic<std::uint32_t> state;  // 0: none, 1: being written, 2: there (release; pairs with acquire)
  std::int32_t code;
  std::int32_t culprit;  // the member that began it; -1: none is known
  std::uint32_t text_bytes;
  char text[8192];
};

// What one member is doing; written by that member alone.
struct MemberState {
  // The call that it is in, kept for two calls: a member cannot get two calls ahead of another. Written before it
  // arrives at the call's first barrier, compared by all behind that barrier; relaxed, because the barrier orders them,
  // and readable at any time for the text of a time-out.
  struct Record {
    std::atomic<std::uint64_t> call;  // Pack
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> place;              // offset in this member's segment, kNotShared or kOnCard
    std::atomic<std::uint64_t> nonfinite_element;  // first one that this member found, or kNothing
    std::atomic<std::uint64_t> nonfinite_rank;     // who caused it; kNothing: nobody
  };
  alignas(kLine) Record records[2];                    // [sequence & 1]
  alignas(kLine) std::atomic<std::uint64_t> sequence;  // of the call that it is in or was in last (relaxed: for people)
  std::atomic<std::uint32_t> in_call;                  // 1 while it is in one (relaxed: for people)
  std::atomic<std::uint32_t> arrived;  // number of the last barrier that it came to and has done its part of: stored
                                       // after `arrivals` was raised and, by the last to come, `released` was stored. A
                                       // dead member that others need no more is then not missed, and one that died
                                       // between the two is
  std::atomic<std::uint32_t> left;  // 1: destroyed its group (release; pairs with the acquire of a waiter's check)
  // RANK + 1 of this member in the whole run; 0: it has none. Written before the first barrier, which orders it.
  std::atomic<std::uint32_t> run_rank;
  alignas(kLine) Doorbell doorbell;
};

struct ControlBlock {
  std::uint32_t size;
  std::uint64_t chunk_bytes;   // of a slot
  std::uint64_t direct_bytes;  // calls up to this size are reduced by every member for itself
  std::uint32_t check_finite;
  std::uint32_t first_barrier;        // number that the barriers are counted from
  std::int32_t nodes[kMaxGroupSize];  // NUMA node of each rank as given by options; -1: as the members tell
  std::atomic<std::uint64_t> cpus[kCpuMaskWords];  // that the members may run on, all together: each adds its own
                                                   // (relaxed), and reads them behind the group's first barrier
  Barrier barrier;
  FailureRecord failure;
  MemberState ranks[kMaxGroupSize];
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(MemberState) == 3 * kLine);

}  // namespace fulldeck::collectives
