// The operations that can be measured, and each rank's buffers before and after one.
//
// A size refers to the whole: the buffer that all ranks have in all_reduce, or the N chunks together in all_gather,
// reduce_scatter, gather, scatter and all_to_all. A chunk is rounded up to whole elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/element.h"

namespace fulldeck::bench {

enum class OperationKind {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kSendReceive,  // rank 2k sends to 2k+1, then vice versa: a round trip
  kBarrier,
};

struct Operation {
  OperationKind kind;
  const char* name;
  bool has_size;   // false for barrier
  bool reduces;    // computes a sum
  bool in_chunks;  // one chunk per rank
  bool has_root;   // the root is rank 0
  bool in_place;   // input and output are the same buffer
};

// nullptr if unknown.
const Operation* FindOperation(std::string_view name);
std::vector<std::string> OperationNames();

// The buffers of one rank for a call.
struct Shape {
  std::uint64_t count = 0;         // as in the C interface: of the buffer, or of one chunk
  std::uint64_t input_count = 0;   // elements of this rank's input; 0: none
  std::uint64_t output_count = 0;  // likewise; 0 if the output is in the input buffer
};
Shape ShapeOf(const Operation& operation, const Element& element, std::uint64_t bytes, int rank, int ranks);

// Bytes of all ranks' buffers together.
std::uint64_t BytesOfAllBuffers(const Operation& operation, const Element& element, std::uint64_t bytes, int ranks);

// The partner of send_receive; -1 for the last rank of an odd number.
int PartnerOf(int rank, int ranks);

}  // namespace fulldeck::bench
