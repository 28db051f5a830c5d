// A group of processes on one node that reduce and exchange data through shared memory. This is the engine behind
// include/fulldeck/collectives.h, and the contract of that header (order of sums, failures, threads) applies here. This
// interface adds buffers on cards, scattered buffers, and what a framework's backend needs. docs/collectives.md
// describes the algorithm, the bytes moved, and the memory order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/kernels/datatype.h"
#include "collectives/memory/staging.h"
#include "collectives/messages/messages.h"
#include "collectives/status.h"

namespace fulldeck::collectives {

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::string name;
  std::string key;  // empty: derived from the launcher's variables, or an error
  base::Duration timeout = std::chrono::minutes(30);
  bool check_finite = false;
  bool expects_cards = false;  // larger chunks, because every copy of a card has a fixed cost; rank 0's value applies

  // Rank 0's values apply to the whole group. 0: chosen from the number of ranks and CPUs.
  std::uint64_t chunk_bytes = 0;  // FULLDECK_COLLECTIVES_PIECE
  // Up to this size each rank reduces everything itself: one barrier instead of two.
  std::uint64_t direct_bytes = 0;

  // For tests.
  bool use_pidfd = true;
  std::uint32_t version = 0;
  int cpus = 0;  // that the ranks may use together; 0: detected
  // Initial value of the barrier counters, to test that they wrap around; rank 0's value applies.
  std::uint32_t first_barrier = 0;
  std::vector<int> nodes;  // NUMA node of each rank; empty: detected, or FULLDECK_COLLECTIVES_NODES ("0,0,1,1")
};

struct Nonfinite {
  int rank = -1;              // the first whose input was not finite; -1: none, the reduction overflowed
  std::uint64_t element = 0;  // the first one in the result
  std::uint64_t call = 0;
};

// The buffer for one rank, in a call that sends to or receives from each rank, and its number of elements.
struct RankBuffer {
  Buffer buffer;
  std::uint64_t count = 0;
};

// When each stage of a call ran, to show overlap (fulldeck bench collectives --timeline).
struct TraceEvent {
  enum class Kind : std::uint8_t { kIn, kReduce, kOut, kWait } kind;
  std::uint64_t chunk = 0;
  std::uint64_t begin_ns = 0;  // CLOCK_MONOTONIC
  std::uint64_t end_ns = 0;
};

class Group {
 public:
  struct CreateResult {
    std::unique_ptr<Group> group;  // nullptr: see status
    Status status;
  };
  static CreateResult Create(const GroupOptions& options);
  // Leaves the group. No call may be in progress.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  std::uint64_t calls() const;  // collectives begun so far: one less than the next sequence number

  Status AllReduce(Buffer input, Buffer output, std::uint64_t count, Datatype datatype, Reduction reduction);
  Status Reduce(Buffer input, Buffer output, std::uint64_t count, Datatype datatype, Reduction reduction, int root);
  Status Broadcast(Buffer buffer, std::uint64_t count, Datatype datatype, int root);
  // Lists have one entry per rank, in order; on ranks that need none (not the root) they are empty.
  Status AllGather(Buffer input, std::span<const Buffer> outputs, std::uint64_t count, Datatype datatype);
  Status ReduceScatter(std::span<const Buffer> inputs, Buffer output, std::uint64_t count, Datatype datatype,
                       Reduction reduction);
  Status Gather(Buffer input, std::span<const Buffer> outputs, std::uint64_t count, Datatype datatype, int root);
  Status Scatter(std::span<const Buffer> inputs, Buffer output, std::uint64_t count, Datatype datatype, int root);
  Status AllToAll(std::span<const RankBuffer> inputs, std::span<const RankBuffer> outputs, Datatype datatype);
  Status Barrier();

  // Send and receive; see messages.h. Blocking calls:
  Messages& messages();
  Status Send(const void* data, std::uint64_t bytes, int to, std::uint64_t tag);
  Status Receive(void* data, std::uint64_t bytes, int from, std::uint64_t tag, int* came_from);

  // Memory that the other members can access. nullptr: see status.
  struct Allocation {
    void* memory = nullptr;
    Status status;
  };
  Allocation Allocate(std::uint64_t bytes);
  void Free(void* memory);
  // Whether the range is within memory from Allocate.
  bool Owns(const void* memory, std::uint64_t bytes) const;

  // Thread safe:
  void Abort(const std::string& reason);
  Status CurrentStatus();
  void SetTimeout(base::Duration timeout);
  base::Duration timeout() const;
  std::optional<Nonfinite> LastNonfinite() const;

  // The shared memory used for staged copies, for a runtime that wants to pin it.
  std::vector<std::span<std::byte>> StagingMemory() const;
  // Called after each call with its events; nullptr: off. Set between calls.
  void SetTrace(std::function<void(std::span<const TraceEvent>)> sink);
  // "8 ranks, kernel avx512, pieces of 512 KiB, one level, yielding": for logs and tests.
  std::string Describe() const;

 private:
  struct Impl;
  explicit Group(std::unique_ptr<Impl> state);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::collectives
