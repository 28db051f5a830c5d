// The collectives that only copy data: broadcast, all_gather, gather, scatter, all_to_all and the barriers.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <thread>

#include "torch_backend/overlap.h"
#include "torch_backend/quiet_dispatch.h"
#include "torch_backend/start_call.h"

namespace fulldeck::torch_backend {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const at::Tensor& OneTensor(const char* call, const char* what, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "fulldeck: ", call, " requires a single-element ", what,
              " tensor list, and was given ", tensors.size(), " tensors.");
  return tensors[0];
}

void CheckLike(const char* call, const at::Tensor& tensor, const at::Tensor& model, std::size_t index) {
  TORCH_CHECK(tensor.defined() && model.defined() && tensor.scalar_type() == model.scalar_type(), "fulldeck: ", call,
              ": invalid tensor type at index ", index, " (expected ", model.toString(), ", got ", tensor.toString(),
              ")");
  TORCH_CHECK(tensor.numel() == model.numel(), "fulldeck: ", call, ": invalid tensor size at index ", index,
              " (expected ", model.sizes(), ", got ", tensor.sizes(), ")");
}

// How the first dimension is split between the ranks, in elements of the engine.
std::vector<OperandRange> Split(const char* call, Operand& operand, const std::vector<std::int64_t>& splits,
                                int ranks) {
  const at::Tensor& tensor = operand.dense();
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK(rows % ranks == 0, "fulldeck: ", call, ": Tensor's dim 0 (", rows,
                ") does not divide equally across group size (", ranks, ")");
    return SplitEvenly(operand, ranks);
  }
  TORCH_CHECK(splits.size() == static_cast<std::size_t>(ranks), "fulldeck: ", call,
              ": Number of tensor splits not equal to group size (", splits.size(), " and ", ranks, ")");
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    TORCH_CHECK(split >= 0, "fulldeck: ", call, ": a split size is negative (", split, ")");
    sum += split;
  }
  TORCH_CHECK(sum == rows, "fulldeck: ", call, ": Split sizes doesn't match total dim 0 size (", sum, " and ", rows,
              ")");
  const std::uint64_t of_row = rows == 0 ? 0 : operand.count() / static_cast<std::uint64_t>(rows);
  std::vector<OperandRange> ranges;
  std::uint64_t first = 0;
  for (const std::int64_t split : splits) {
    const std::uint64_t count = static_cast<std::uint64_t>(split) * of_row;
    ranges.push_back({&operand, first, count});
    first += count;
  }
  return ranges;
}

std::string RankList(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

void SharedMemoryBackend::CheckRoot(const char* call, std::int64_t root) const {
  TORCH_CHECK(root >= 0 && root < size_, "fulldeck: ", call, ": invalid root rank: ", root, " (the group has ", size_,
              " ranks)");
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                              const c10d::BroadcastOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& tensor = OneTensor("broadcast", "", tensors);
  CheckRoot("broadcast", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  auto operands = std::make_shared<Operands>("broadcast");
  const OperandRange data = Whole(rank_ == root ? operands->Read(tensor) : operands->Write(tensor));
  return Start(c10d::OpType::BROADCAST, "broadcast", tensors, tensors, options, std::move(operands),
               [data, root](Route& route, Operands& on) { route.Broadcast(on, data, root); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                              std::vector<at::Tensor>& inputs,
                                                              const c10d::AllgatherOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& input = OneTensor("all_gather", "input", inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_),
              "fulldeck: all_gather requires one list of ", size_, " output tensors, one for each rank.");
  auto operands = std::make_shared<Operands>("all_gather");
  const OperandRange from =
      Whole(operands->Read(ApartFrom(input, outputs[0], &outputs[0][static_cast<std::size_t>(rank_)])));
  std::vector<OperandRange> to;
  for (std::size_t i = 0; i < outputs[0].size(); ++i) {
    CheckLike("all_gather", outputs[0][i], input, i);
    to.push_back(Whole(operands->Write(outputs[0][i])));
  }
  return Start(c10d::OpType::ALLGATHER, "all_gather", inputs, outputs[0], options, std::move(operands),
               [from, to](Route& route, Operands& on) { route.AllGather(on, from, to); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                    const c10d::AllgatherOptions& options) {
  std::vector<at::Tensor> outputs = {output};
  std::vector<at::Tensor> inputs = {input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions& options) {
  const QuietDispatch quiet;
  TORCH_CHECK(outputs.size() == inputs.size() && !inputs.empty(),
              "fulldeck: all_gather_into_tensor requires as many outputs as inputs, and at least one.");
  auto operands = std::make_shared<Operands>("all_gather_into_tensor");
  std::vector<std::pair<OperandRange, std::vector<OperandRange>>> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    const at::Tensor& output = outputs[i];
    TORCH_CHECK(input.scalar_type() == output.scalar_type(),
                "fulldeck: all_gather_into_tensor: output tensor must have the same type as input tensor (",
                input.toString(), " and ", output.toString(), ").");
    TORCH_CHECK(
        input.numel() * size_ == output.numel(),
        "fulldeck: all_gather_into_tensor: output tensor size must be equal to world_size times input tensor size (",
        output.numel(), ", ", size_, " and ", input.numel(), ").");
    const OperandRange from = Whole(operands->Read(ApartFromParts(input, output, size_, rank_)));
    calls.emplace_back(from, SplitEvenly(operands->Write(output), size_));
  }
  return Start(inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::ALLGATHER_COALESCED, "all_gather",
               inputs, outputs, options, std::move(operands), [calls](Route& route, Operands& on) {
                 for (const auto& call : calls) route.AllGather(on, call.first, call.second);
               });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                                        std::vector<at::Tensor>& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  const QuietDispatch quiet;
  TORCH_CHECK(!inputs.empty(), "fulldeck: all_gather_coalesced requires non-empty input tensor list");
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "fulldeck: all_gather_coalesced: output lists should be equal to world size (", outputs.size(), " and ",
              size_, ")");
  auto operands = std::make_shared<Operands>("all_gather_coalesced");
  std::vector<std::pair<OperandRange, std::vector<OperandRange>>> calls;
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<at::Tensor> targets;
    for (const auto& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), "fulldeck: all_gather_coalesced: invalid output size (expected length ",
                  inputs.size(), ", got ", list.size(), ")");
      CheckLike("all_gather_coalesced", list[i], inputs[i], i);
      targets.push_back(list[i]);
    }
    std::pair<OperandRange, std::vector<OperandRange>> call;
    call.first = Whole(operands->Read(ApartFrom(inputs[i], targets, &targets[static_cast<std::size_t>(rank_)])));
    for (const at::Tensor& target : targets) call.second.push_back(Whole(operands->Write(target)));
    calls.push_back(std::move(call));
  }
  for (const auto& list : outputs) results.insert(results.end(), list.begin(), list.end());
  return Start(c10d::OpType::ALLGATHER_COALESCED, "all_gather", inputs, std::move(results), options,
               std::move(operands), [calls](Route& route, Operands& on) {
                 for (const auto& call : calls) route.AllGather(on, call.first, call.second);
               });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                                           std::vector<at::Tensor>& inputs,
                                                           const c10d::GatherOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& input = OneTensor("gather", "input", inputs);
  CheckRoot("gather", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  auto operands = std::make_shared<Operands>("gather");
  std::vector<OperandRange> to;
  std::vector<at::Tensor> results;
  OperandRange from;
  if (rank_ == root) {
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_),
                "fulldeck: gather requires one list of ", size_, " output tensors on the root.");
    results = outputs[0];
    from = Whole(operands->Read(ApartFrom(input, results, nullptr)));
    for (std::size_t i = 0; i < results.size(); ++i) {
      CheckLike("gather", results[i], input, i);
      to.push_back(Whole(operands->Write(results[i])));
    }
  } else {
    TORCH_CHECK(outputs.empty(), "fulldeck: gather requires empty output on non-root");
    from = Whole(operands->Read(input));
  }
  return Start(c10d::OpType::GATHER, "gather", inputs, std::move(results), options, std::move(operands),
               [from, to, root](Route& route, Operands& on) { route.Gather(on, from, to, root); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::scatter(std::vector<at::Tensor>& outputs,
                                                            std::vector<std::vector<at::Tensor>>& inputs,
                                                            const c10d::ScatterOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& output = OneTensor("scatter", "output", outputs);
  CheckRoot("scatter", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  auto operands = std::make_shared<Operands>("scatter");
  std::vector<OperandRange> from;
  if (rank_ == root) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_),
                "fulldeck: scatter requires one list of ", size_, " input tensors on the root.");
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      CheckLike("scatter", inputs[0][i], output, i);
      from.push_back(Whole(operands->Read(ApartFrom(inputs[0][i], {output}, nullptr))));
    }
  } else {
    TORCH_CHECK(inputs.empty(), "fulldeck: scatter requires empty input on non-root");
  }
  const OperandRange to = Whole(operands->Write(output));
  return Start(c10d::OpType::SCATTER, "scatter", inputs.empty() ? std::vector<at::Tensor>() : inputs[0], outputs,
               options, std::move(operands),
               [from, to, root](Route& route, Operands& on) { route.Scatter(on, from, to, root); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                                  std::vector<std::int64_t>& output_splits,
                                                                  std::vector<std::int64_t>& input_splits,
                                                                  const c10d::AllToAllOptions& options) {
  const QuietDispatch quiet;
  TORCH_CHECK(input.scalar_type() == output.scalar_type(),
              "fulldeck: all_to_all_single requires tensors of one type: ", input.toString(), " and ",
              output.toString(), ".");
  auto operands = std::make_shared<Operands>("all_to_all_single");
  const std::vector<OperandRange> from =
      Split("all_to_all_single", operands->Read(ApartFrom(input, {output}, nullptr)), input_splits, size_);
  const std::vector<OperandRange> to = Split("all_to_all_single", operands->Write(output), output_splits, size_);
  return Start(c10d::OpType::ALLTOALL_BASE, "all_to_all", {input}, {output}, options, std::move(operands),
               [from, to](Route& route, Operands& on) { route.AllToAll(on, from, to); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                             std::vector<at::Tensor>& inputs,
                                                             const c10d::AllToAllOptions& options) {
  const QuietDispatch quiet;
  const auto ranks = static_cast<std::size_t>(size_);
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks, "fulldeck: all_to_all requires ", ranks,
              " input and output tensors, one for each rank, and was given ", inputs.size(), " and ", outputs.size(),
              ".");
  auto operands = std::make_shared<Operands>("all_to_all");
  std::vector<OperandRange> from;
  std::vector<OperandRange> to;
  for (std::size_t i = 0; i < ranks; ++i) {
    TORCH_CHECK(
        inputs[i].scalar_type() == inputs[0].scalar_type() && outputs[i].scalar_type() == inputs[0].scalar_type(),
        "fulldeck: all_to_all requires tensors of one type.");
    from.push_back(Whole(operands->Read(ApartFrom(inputs[i], outputs, nullptr))));
    to.push_back(Whole(operands->Write(outputs[i])));
  }
  return Start(c10d::OpType::ALLTOALL, "all_to_all", inputs, outputs, options, std::move(operands),
               [from, to](Route& route, Operands& on) { route.AllToAll(on, from, to); });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::barrier(const c10d::BarrierOptions& options) {
  return Start(c10d::OpType::BARRIER, "barrier", {}, {}, options, std::make_shared<Operands>("barrier"),
               [](Route& route, Operands&) { route.Barrier(); });
}

void SharedMemoryBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  static_cast<void>(core());
  const milliseconds timeout = minor::TimeoutOf(options, timeout_.load());
  const auto begin = steady_clock::now();
  const std::string prefix = prefix_ + "monitored/" + std::to_string(monitored_.fetch_add(1)) + "/";
  c10d::Store& store = *request_.store;
  // Polls the store instead of waiting on it: a wait would block the store for other threads.
  const auto wait_for = [&](const std::string& key) {
    auto nap = std::chrono::microseconds(100);
    while (!store.check({key})) {
      if (steady_clock::now() - begin >= timeout) return false;
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::microseconds>(nap * 2, std::chrono::milliseconds(20));
    }
    return true;
  };
  const std::string in_time = " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
  const std::string verdict = prefix + "verdict";
  if (rank_ != 0) {
    store.set(prefix + std::to_string(rank_), std::string("here"));
    const bool answered = wait_for(verdict);
    const std::string text = answered ? store.get_to_str(verdict) : "rank 0 did not answer" + in_time;
    if (text == "passed") return;
    C10_THROW_ERROR(DistBackendError,
                    "fulldeck: Rank " + std::to_string(rank_) +
                        " successfully reached monitoredBarrier, but received errors while waiting for "
                        "send/recv from rank 0. Please check rank 0 logs for faulty rank. (" +
                        base::Printable(text) + ")");
  }
  std::vector<int> arrived;
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    (wait_for(prefix + std::to_string(rank)) ? arrived : missing).push_back(rank);
    if (!missing.empty() && !wait_all_ranks) break;
  }
  if (missing.empty()) {
    store.set(verdict, std::string("passed"));
    return;
  }
  std::string text = "[Rank 0]: Rank" + std::string(wait_all_ranks ? "s " : " ") + RankList(missing) + in_time;
  store.set(verdict, text);
  if (!wait_all_ranks) {
    text += "\nRank 0 timed out in monitoredBarrier after " + std::to_string(timeout.count()) + " ms. " +
            (arrived.empty() ? "No ranks were there." : "These ranks were there: " + RankList(arrived) + ".");
  }
  C10_THROW_ERROR(DistBackendError, "fulldeck: " + text);
}

}  // namespace fulldeck::torch_backend
