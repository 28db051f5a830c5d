// The shared memory through which the members of a group synchronize: created and initialized by rank 0, mapped by all.
// It contains only counters, flags and small records; data goes through the members' own segments (segment_layout.h).
//
// It contains no lock, because a member can die between any two instructions. docs/collectives.md explains why the
// memory order is correct on every CPU; the comment at each word names what it pairs with.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/max_group_size.h"
#include "collectives/messages/messages.h"

namespace fulldeck::collectives {

// The place of a call's data if it is not at an offset of the member's segment: in private memory, or on a card.
inline constexpr std::uint64_t kNotShared = ~std::uint64_t{0};
inline constexpr std::uint64_t kOnCard = ~std::uint64_t{1};
inline constexpr std::uint64_t kNothing = ~std::uint64_t{0};
inline constexpr int kCpuMaskWords = 64;
// Two cache lines: CPUs prefetch them in pairs.
inline constexpr std::size_t kLine = 128;

// A barrier of all members. Barrier number b (from 1) is complete when `arrivals` reaches b × size.
struct Barrier {
  alignas(
      kLine) std::atomic<std::uint32_t> arrivals;  // add acq_rel: the last member to arrive sees what all wrote before
  alignas(
      kLine) std::atomic<std::uint32_t> released;  // number of the last complete barrier; stored by the last member to
                                                   // arrive, pairs with the acquire load of the waiters. Futex word.
  std::atomic<std::uint32_t> sleepers;             // see waiting.h
};

// Why the group is unusable. Written once, by the member that sets `state` from 0 to 1.
struct FailureRecord {
  alignas(kLine) std::atomic<std::uint32_t> state;  // 0: none, 1: being written, 2: done (release; pairs with acquire)
  std::int32_t code;
  std::int32_t culprit;  // the member that caused it; -1: unknown
  std::uint32_t text_bytes;
  char text[8192];
};

// The state of one member; written only by that member.
struct MemberState {
  // The current call. Two records suffice because no member can be two calls ahead of another. Written before the
  // member arrives at the first barrier of the call and compared by all after that barrier; relaxed, because the
  // barrier orders the accesses. May also be read at any time for the text of a timeout.
  struct Record {
    std::atomic<std::uint64_t> call;  // Pack
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> place;              // offset in this member's segment, kNotShared or kOnCard
    std::atomic<std::uint64_t> nonfinite_element;  // first one that this member found, or kNothing
    std::atomic<std::uint64_t> nonfinite_rank;     // rank that caused it; kNothing: none
  };
  alignas(kLine) Record records[2];                    // [sequence & 1]
  alignas(kLine) std::atomic<std::uint64_t> sequence;  // of its current or last call (relaxed: only for messages)
  std::atomic<std::uint32_t> in_call;                  // 1 during a call (relaxed: only used in error messages)
  // Number of the last barrier for which it has done its part. Stored after `arrivals` was incremented and, by the last
  // member to arrive, `released` was stored. So a dead member that the others no longer need is not reported, and one
  // that died between the two stores is.
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> left;  // 1: destroyed its group (release; pairs with the acquire in Gone)
  // RANK + 1 of this member in the whole run; 0: none. Written before the first barrier, which orders the accesses.
  std::atomic<std::uint32_t> run_rank;
  alignas(kLine) Doorbell doorbell;
};

struct ControlBlock {
  std::uint32_t size;
  std::uint64_t chunk_bytes;   // of a slot
  std::uint64_t direct_bytes;  // calls up to this size are reduced redundantly by every member
  std::uint32_t check_finite;
  std::uint32_t first_barrier;        // number at which the barrier counters start
  std::int32_t nodes[kMaxGroupSize];  // NUMA node of each rank from the options; -1: as reported by the members
  // Union of the CPUs that the members may run on: each member adds its own (relaxed), and reads them after the group's
  // first barrier.
  std::atomic<std::uint64_t> cpus[kCpuMaskWords];
  Barrier barrier;
  FailureRecord failure;
  MemberState ranks[kMaxGroupSize];
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(MemberState) == 3 * kLine);

}  // namespace fulldeck::collectives
