// What a collective call asks for, apart from its data: the part that must be the same on all members.
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
// As the rank board counts them.
std::uint32_t BoardOperation(Operation operation);

struct Call {
  Operation operation = Operation::kBarrier;
  Datatype datatype = Datatype::kUint8;
  Reduction reduction = Reduction::kNone;
  int root = -1;            // -1: none
  std::uint64_t count = 0;  // elements; 0 where each rank has its own (all_to_all)

  bool operator==(const Call&) const = default;
  std::uint64_t Fingerprint() const;  // never 0
};

// In one word, for memory that others read while it is written: everything but the count.
std::uint64_t Pack(const Call& call);
// What came from another process: numbers that mean nothing become a barrier.
Call Unpack(std::uint64_t word, std::uint64_t count);

// "all_reduce(sum, float32 × 1024)", "broadcast(int64 × 3, root 2)".
std::string Describe(const Call& call);
// "ranks 0–2, 5: all_reduce(sum, float32 × 1024); rank 3: barrier()".
std::string DescribeCalls(const std::vector<Call>& by_rank);
// The first member whose call differs from that of more than half of them; -1 where no call has such a majority.
int FindOutlier(const std::vector<Call>& by_rank);

}  // namespace fulldeck::collectives
