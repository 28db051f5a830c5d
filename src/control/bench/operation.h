// The operations that can be measured, and what each rank's buffers hold before and after one.
//
// A size is that of the whole: the buffer that all have in all_reduce, the N chunks together in all_gather,
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
  kSendReceive,  // rank 2k sends to 2k+1, then the other way: a round trip
  kBarrier,
};

struct Operation {
  OperationKind kind;
  const char* name;
  bool has_size;   // barrier has none
  bool reduces;    // a sum
  bool in_chunks;  // one chunk for each rank
  bool has_root;   // which is rank 0
  bool in_place;   // input and output are one buffer
};

// nullptr: not known.
const Operation* FindOperation(std::string_view name);
std::vector<std::string> OperationNames();

// What one rank needs for a call.
struct Shape {
  std::uint64_t count = 0;         // as the C interface takes it: of the buffer, or of one chunk
  std::uint64_t input_count = 0;   // elements of this rank's input; 0: none
  std::uint64_t output_count = 0;  // likewise; 0 where the buffer is the input's
};
Shape ShapeOf(const Operation& operation, const Element& element, std::uint64_t bytes, int rank, int ranks);

// All ranks' buffers together.
std::uint64_t BytesOfAllBuffers(const Operation& operation, const Element& element, std::uint64_t bytes, int ranks);

// The partner of send_receive; -1 for the last of an odd number.
int PartnerOf(int rank, int ranks);

}  // namespace fulldeck::bench
