#include <c10/util/Exception.h>

#include <algorithm>

#include "torch_backend/route.h"

namespace fulldeck::torch_backend {

using collectives::Buffer;
using collectives::Datatype;
using collectives::Reduction;
using collectives::Status;

void Failures::Throw(const char* call, const std::string& text) const {
  std::string message = "fulldeck: " + std::string(call) + " in group '" + base::Printable(group_name_) + "': " + text;
  bool same = true;
  for (std::size_t rank = 0; rank < global_ranks_.size(); ++rank)
    same &= global_ranks_[rank] == static_cast<std::int64_t>(rank);
  if (!same) {
    std::string remark = "\nRanks are counted " + counted_ + ": its ranks 0, 1, … are the ranks ";
    for (std::size_t rank = 0; rank < global_ranks_.size(); ++rank) {
      remark += (rank == 0 ? "" : ", ") + std::to_string(global_ranks_[rank]);
    }
    remark += " of the job.";
    // A text that came from another rank of this node already contains the remark.
    if (text.find(remark) == std::string::npos) message += remark;
  }
  C10_THROW_ERROR(DistBackendError, message);
}

void Failures::ThrowIf(const Status& status, const char* call, std::chrono::milliseconds timeout) const {
  if (status.ok()) return;
  if (status.code() == FULLDECK_ERROR_TIMEOUT) {
    // The wording of Gloo's messages, which programs search for.
    Throw(call, "Timed out waiting " + std::to_string(timeout.count()) + "ms. " + status.text());
  }
  Throw(call, status.text());
}

LocalRoute::LocalRoute(std::shared_ptr<collectives::Group> group, std::shared_ptr<const Failures> failures)
    : group_(std::move(group)),
      failures_(std::move(failures)),
      copy_streams_([weak = std::weak_ptr(group_)]() -> std::vector<std::span<std::byte>> {
        const auto alive = weak.lock();
        return alive ? alive->StagingMemory() : std::vector<std::span<std::byte>>();
      }) {}

std::vector<Buffer> LocalRoute::BuffersOf(Operands& operands, const std::vector<OperandRange>& ranges) {
  std::vector<Buffer> buffers;
  buffers.reserve(ranges.size());
  for (const OperandRange& range : ranges) buffers.push_back(operands.BufferOf(range, copy_streams_));
  return buffers;
}

void LocalRoute::Check(const Status& status, const char* call) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  failures_->ThrowIf(status, call, timeout_);
}

void LocalRoute::AllReduce(Operands& operands, const OperandRange& data, Reduction reduction) {
  const Buffer buffer = operands.BufferOf(data, copy_streams_);
  Check(group_->AllReduce(buffer, buffer, data.count, data.operand->element().datatype, reduction), operands.call());
}

void LocalRoute::Reduce(Operands& operands, const OperandRange& data, Reduction reduction, int root) {
  const Buffer buffer = operands.BufferOf(data, copy_streams_);
  Check(group_->Reduce(buffer, buffer, data.count, data.operand->element().datatype, reduction, root), operands.call());
}

void LocalRoute::Broadcast(Operands& operands, const OperandRange& data, int root) {
  const Buffer buffer = operands.BufferOf(data, copy_streams_);
  Check(group_->Broadcast(buffer, data.count, data.operand->element().datatype, root), operands.call());
}

void LocalRoute::AllGather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs) {
  const std::vector<Buffer> buffers = BuffersOf(operands, outputs);
  Check(group_->AllGather(operands.BufferOf(input, copy_streams_), buffers, input.count,
                          input.operand->element().datatype),
        operands.call());
}

void LocalRoute::ReduceScatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
                               Reduction reduction) {
  const std::vector<Buffer> buffers = BuffersOf(operands, inputs);
  Check(group_->ReduceScatter(buffers, operands.BufferOf(output, copy_streams_), output.count,
                              output.operand->element().datatype, reduction),
        operands.call());
}

void LocalRoute::Gather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs,
                        int root) {
  const std::vector<Buffer> buffers = BuffersOf(operands, outputs);
  Check(group_->Gather(operands.BufferOf(input, copy_streams_), buffers, input.count, input.operand->element().datatype,
                       root),
        operands.call());
}

void LocalRoute::Scatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
                         int root) {
  const std::vector<Buffer> buffers = BuffersOf(operands, inputs);
  Check(group_->Scatter(buffers, operands.BufferOf(output, copy_streams_), output.count,
                        output.operand->element().datatype, root),
        operands.call());
}

void LocalRoute::AllToAll(Operands& operands, const std::vector<OperandRange>& inputs,
                          const std::vector<OperandRange>& outputs) {
  const auto parts_of = [&](const std::vector<OperandRange>& ranges) {
    std::vector<collectives::RankBuffer> parts;
    parts.reserve(ranges.size());
    for (const OperandRange& range : ranges) parts.push_back({operands.BufferOf(range, copy_streams_), range.count});
    return parts;
  };
  const auto from = parts_of(inputs);
  const auto to = parts_of(outputs);
  Check(group_->AllToAll(from, to, inputs.front().operand->element().datatype), operands.call());
}

void LocalRoute::Barrier() {
  Check(group_->Barrier(), "barrier");
}

void LocalRoute::SetTimeout(std::chrono::milliseconds timeout) {
  if (timeout == timeout_) return;
  timeout_ = timeout;
  group_->SetTimeout(timeout);
}

void LocalRoute::Abort(const std::string& reason) {
  group_->Abort(reason);
}

PathCounts LocalRoute::paths() const {
  return {.local = calls_.load(std::memory_order_relaxed)};
}

std::string LocalRoute::Describe() const {
  return std::to_string(group_->size()) + (group_->size() == 1 ? " rank" : " ranks") +
         " on 1 host: " + group_->Describe();
}

}  // namespace fulldeck::torch_backend
