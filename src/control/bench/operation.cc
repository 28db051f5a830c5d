#include "bench/operation.h"

namespace fulldeck::bench {
namespace {

using enum OperationKind;

constexpr Operation kOperations[] = {
    // kind, name, has_size, reduces, in_chunks, has_root, in_place
    {kAllReduce, "all_reduce", true, true, false, false, true},
    {kReduce, "reduce", true, true, false, true, true},
    {kBroadcast, "broadcast", true, false, false, true, true},
    {kAllGather, "all_gather", true, false, true, false, false},
    {kReduceScatter, "reduce_scatter", true, true, true, false, false},
    {kGather, "gather", true, false, true, true, false},
    {kScatter, "scatter", true, false, true, true, false},
    {kAllToAll, "all_to_all", true, false, true, false, false},
    {kSendReceive, "send_receive", true, false, false, false, false},
    {kBarrier, "barrier", false, false, false, false, false},
};

}  // namespace

const Operation* FindOperation(std::string_view name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return &operation;
  }
  return nullptr;
}

std::vector<std::string> OperationNames() {
  std::vector<std::string> names;
  for (const Operation& operation : kOperations) names.emplace_back(operation.name);
  return names;
}

int PartnerOf(int rank, int ranks) {
  const int partner = rank ^ 1;
  return partner < ranks ? partner : -1;
}

Shape ShapeOf(const Operation& operation, const Element& element, std::uint64_t bytes, int rank, int ranks) {
  if (!operation.has_size) return {};
  const auto chunks = static_cast<std::uint64_t>(ranks);
  const std::uint64_t all = bytes / element.bytes;
  const std::uint64_t chunk = all / chunks + (all % chunks != 0 ? 1 : 0);
  switch (operation.kind) {
    case kAllGather:
      return {chunk, chunk, chunk * chunks};
    case kReduceScatter:
      return {chunk, chunk * chunks, chunk};
    case kGather:
      return {chunk, chunk, rank == 0 ? chunk * chunks : 0};
    case kScatter:
      return {chunk, rank == 0 ? chunk * chunks : 0, chunk};
    case kAllToAll:
      return {chunk, chunk * chunks, chunk * chunks};
    case kSendReceive:
      if (PartnerOf(rank, ranks) < 0) return {};
      return {all, all, all};
    default:
      return {all, all, 0};
  }
}

std::uint64_t BytesOfAllBuffers(const Operation& operation, const Element& element, std::uint64_t bytes, int ranks) {
  std::uint64_t elements = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Shape shape = ShapeOf(operation, element, bytes, rank, ranks);
    elements += shape.input_count + shape.output_count;
  }
  return elements * element.bytes;
}

}  // namespace fulldeck::bench
