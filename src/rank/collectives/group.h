// A group of processes on one host that reduce and exchange data through shared memory. The engine behind
// include/fulldeck/collectives.h, whose promises (order of sums, failures, threads) hold here word for word; this
// interface adds buffers on cards, buffers in parts, and what a framework's backend needs. docs/collectives.md has the
// algorithm, the bytes moved, and why the memory order is right.
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
  std::string key;  // empty: made from the launcher's variables, or an error
  base::Duration timeout = std::chrono::minutes(30);
  bool check_finite = false;
  bool expects_cards = false;  // larger chunks: every copy of a card has a price of its own. Rank 0's counts

  // Rank 0's values count for the whole group. 0: chosen from the number of ranks and cpus.
  std::uint64_t chunk_bytes = 0;   // FULLDECK_COLLECTIVES_PIECE
  std::uint64_t direct_bytes = 0;  // up to this size each rank reduces everything itself: one rendezvous instead of two

  // For tests.
  bool use_pidfd = true;
  std::uint32_t version = 0;
  int cpus = 0;                     // that the ranks may use together; 0: found out
  std::uint32_t first_barrier = 0;  // rank 0's counts: where the counters of the barriers begin, to see them wrap round
  std::vector<int> nodes;  // NUMA node of each rank; empty: found out, or FULLDECK_COLLECTIVES_NODES ("0,0,1,1")
};

struct Nonfinite {
  int rank = -1;              // the first whose input was not finite; -1: none was, the reduction overflowed
  std::uint64_t element = 0;  // the first of the result
  std::uint64_t call = 0;
};

// One buffer of a call that gives to or takes from each rank, and how many elements of it.
struct RankBuffer {
  Buffer buffer;
  std::uint64_t count = 0;
};

// What one call did when, for proofs of overlap (fulldeck bench collectives --timeline).
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
  // Leaves. No call may be under way.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  std::uint64_t calls() const;  // collective calls begun so far: the sequence number of the next one less one

  Status AllReduce(Buffer input, Buffer output, std::uint64_t count, Datatype datatype, Reduction reduction);
  Status Reduce(Buffer input, Buffer output, std::uint64_t count, Datatype datatype, Reduction reduction, int root);
  Status Broadcast(Buffer buffer, std::uint64_t count, Datatype datatype, int root);
  // Lists have one entry a rank, in order; on ranks that need none (not the root) they are empty.
  Status AllGather(Buffer input, std::span<const Buffer> outputs, std::uint64_t count, Datatype datatype);
  Status ReduceScatter(std::span<const Buffer> inputs, Buffer output, std::uint64_t count, Datatype datatype,
                       Reduction reduction);
  Status Gather(Buffer input, std::span<const Buffer> outputs, std::uint64_t count, Datatype datatype, int root);
  Status Scatter(std::span<const Buffer> inputs, Buffer output, std::uint64_t count, Datatype datatype, int root);
  Status AllToAll(std::span<const RankBuffer> inputs, std::span<const RankBuffer> outputs, Datatype datatype);
  Status Barrier();

  // Send and receive; see messages.h. Blocking forms:
  Messages& messages();
  Status Send(const void* data, std::uint64_t bytes, int to, std::uint64_t tag);
  Status Receive(void* data, std::uint64_t bytes, int from, std::uint64_t tag, int* came_from);

  // Memory that the others can reach. nullptr: see status.
  struct Allocation {
    void* memory = nullptr;
    Status status;
  };
  Allocation Allocate(std::uint64_t bytes);
  void Free(void* memory);
  // Does this stretch lie in memory from Allocate?
  bool Owns(const void* memory, std::uint64_t bytes) const;

  // Any thread.
  void Abort(const std::string& reason);
  Status CurrentStatus();
  void SetTimeout(base::Duration timeout);
  base::Duration timeout() const;
  std::optional<Nonfinite> LastNonfinite() const;

  // The shared memory that staged copies go through, for a runtime that wants to pin it.
  std::vector<std::span<std::byte>> StagingMemory() const;
  // Called after each call with what it did; nullptr: off. Set between calls.
  void SetTrace(std::function<void(std::span<const TraceEvent>)> sink);
  // "8 ranks, kernel avx512, pieces of 512 KiB, one level, yielding": for logs and tests.
  std::string Describe() const;

 private:
  struct Impl;
  explicit Group(std::unique_ptr<Impl> state);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::collectives
