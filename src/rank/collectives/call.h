// The description of a collective without its data: what must be equal on all members.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/kernels/datatype.h"

namespace fulldeck::collectives {

enum class Operation : std::uint8_t {
  kBarrier = 1,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
};
const char* NameOf(Operation operation);  // "all_reduce"
// The operation's number on the rank board.
std::uint32_t BoardOperation(Operation operation);

struct Call {
  Operation operation = Operation::kBarrier;
  Datatype datatype = Datatype::kUint8;
  Reduction reduction = Reduction::kNone;
  int root = -1;            // -1: none
  std::uint64_t count = 0;  // elements; 0 if each rank has its own counts (all_to_all)

  bool operator==(const Call&) const = default;
  std::uint64_t Fingerprint() const;  // never 0
};

// Everything except the count, packed into one word, so that other processes can read it while it is written.
std::uint64_t Pack(const Call& call);
// Input from another process: invalid numbers become a barrier.
Call Unpack(std::uint64_t word, std::uint64_t count);

// "all_reduce(sum, float32 × 1024)", "broadcast(int64 × 3, root 2)".
std::string Describe(const Call& call);
// "ranks 0–2, 5: all_reduce(sum, float32 × 1024); rank 3: barrier()".
std::string DescribeCalls(const std::vector<Call>& by_rank);
// The first member whose call differs from that of the majority; -1 if more than half do not agree.
int FindOutlier(const std::vector<Call>& by_rank);

}  // namespace fulldeck::collectives
