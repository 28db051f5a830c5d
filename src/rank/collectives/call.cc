#include "collectives/call.h"

#include <algorithm>

#include "base/text.h"
#include "fulldeck/rank_board.h"

namespace fulldeck::collectives {
namespace {

struct OperationRow {
  Operation operation;
  const char* name;
  std::uint32_t board;
};
constexpr OperationRow kOperations[] = {
    {Operation::kBarrier, "barrier", FULLDECK_BOARD_BARRIER},
    {Operation::kAllReduce, "all_reduce", FULLDECK_BOARD_ALL_REDUCE},
    {Operation::kReduce, "reduce", FULLDECK_BOARD_REDUCE},
    {Operation::kBroadcast, "broadcast", FULLDECK_BOARD_BROADCAST},
    {Operation::kAllGather, "all_gather", FULLDECK_BOARD_ALL_GATHER},
    {Operation::kReduceScatter, "reduce_scatter", FULLDECK_BOARD_REDUCE_SCATTER},
    {Operation::kGather, "gather", FULLDECK_BOARD_GATHER},
    {Operation::kScatter, "scatter", FULLDECK_BOARD_SCATTER},
    {Operation::kAllToAll, "all_to_all", FULLDECK_BOARD_ALL_TO_ALL},
};

const OperationRow* RowOf(Operation operation) {
  for (const OperationRow& row : kOperations) {
    if (row.operation == operation) return &row;
  }
  return nullptr;
}

std::uint64_t Mix(std::uint64_t value) {  // the finalizer of splitmix64
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

const char* NameOf(Operation operation) {
  const OperationRow* row = RowOf(operation);
  return row == nullptr ? "unknown" : row->name;
}

std::uint32_t BoardOperation(Operation operation) {
  const OperationRow* row = RowOf(operation);
  return row == nullptr ? static_cast<std::uint32_t>(FULLDECK_BOARD_OTHER_OPERATION) : row->board;
}

std::uint64_t Pack(const Call& call) {
  return static_cast<std::uint64_t>(call.operation) | static_cast<std::uint64_t>(call.datatype) << 8 |
         static_cast<std::uint64_t>(call.reduction) << 16 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
}

Call Unpack(std::uint64_t word, std::uint64_t count) {
  Call call;
  const auto operation = static_cast<Operation>(word & 0xff);
  if (RowOf(operation) == nullptr) return call;
  call.operation = operation;
  if (const int datatype = static_cast<int>(word >> 8 & 0xff); IsDatatype(datatype)) {
    call.datatype = static_cast<Datatype>(datatype);
  }
  if (const int reduction = static_cast<int>(word >> 16 & 0xff); IsReduction(reduction)) {
    call.reduction = static_cast<Reduction>(reduction);
  }
  call.root = static_cast<std::int32_t>(word >> 32);
  call.count = count;
  return call;
}

std::uint64_t Call::Fingerprint() const {
  const std::uint64_t mixed = Mix(Pack(*this) ^ Mix(count));
  return mixed == 0 ? 1 : mixed;
}

std::string Describe(const Call& call) {
  std::string text = NameOf(call.operation);
  text += '(';
  if (call.operation != Operation::kBarrier) {
    if (call.reduction != Reduction::kNone) text += std::string(NameOf(call.reduction)) + ", ";
    text += NameOf(call.datatype);
    if (call.operation != Operation::kAllToAll) text += " × " + std::to_string(call.count);
    if (call.root >= 0) text += ", root " + std::to_string(call.root);
  }
  return text + ')';
}

std::string DescribeCalls(const std::vector<Call>& by_rank) {
  std::string text;
  std::vector<bool> listed(by_rank.size(), false);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (listed[rank]) continue;
    std::vector<int> same;
    for (std::size_t other = rank; other < by_rank.size(); ++other) {
      if (!listed[other] && by_rank[other] == by_rank[rank]) {
        same.push_back(static_cast<int>(other));
        listed[other] = true;
      }
    }
    if (!text.empty()) text += "; ";
    text += base::FormatRanks(same) + ": " + Describe(by_rank[rank]);
  }
  return text;
}

int FindOutlier(const std::vector<Call>& by_rank) {
  const auto alike = [&](const Call& call) { return std::count(by_rank.begin(), by_rank.end(), call); };
  const auto size = static_cast<std::ptrdiff_t>(by_rank.size());
  const bool majority =
      std::any_of(by_rank.begin(), by_rank.end(), [&](const Call& call) { return 2 * alike(call) > size; });
  if (!majority) return -1;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (2 * alike(by_rank[rank]) <= size) return static_cast<int>(rank);
  }
  return -1;
}

}  // namespace fulldeck::collectives
