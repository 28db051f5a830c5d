#include "torch_backend/multi_node_route.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

namespace fulldeck::torch_backend {

using collectives::Buffer;
using collectives::Datatype;
using collectives::Reduction;
using collectives::Status;

namespace {

std::size_t Index(int number) {
  return static_cast<std::size_t>(number);
}

c10d::ReduceOp::RedOpType GlooOp(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
      return c10d::ReduceOp::MIN;
    case Reduction::kMax:
      return c10d::ReduceOp::MAX;
    case Reduction::kProd:
      return c10d::ReduceOp::PRODUCT;
    case Reduction::kAnd:
      return c10d::ReduceOp::BAND;
    case Reduction::kOr:
      return c10d::ReduceOp::BOR;
    case Reduction::kXor:
      return c10d::ReduceOp::BXOR;
    default:
      return c10d::ReduceOp::SUM;
  }
}

// For booleans, which are stored as bytes 0 and 1.
c10d::ReduceOp::RedOpType GlooOpOfBool(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
    case Reduction::kProd:
    case Reduction::kAnd:
      return c10d::ReduceOp::MIN;
    case Reduction::kXor:
      return c10d::ReduceOp::BXOR;
    default:
      return c10d::ReduceOp::MAX;
  }
}

// Data that is only copied is passed to Gloo as bytes, because Gloo supports fewer types.
at::Tensor Bytes(const at::Tensor& flat) {
  return flat.view(at::kByte);
}

Buffer HostBuffer(const at::Tensor& tensor, std::int64_t element = 0) {
  return Buffer::Host(static_cast<std::byte*>(tensor.data_ptr()) + element * tensor.element_size());
}

}  // namespace

MultiNodeRoute::MultiNodeRoute(Groups parts) : groups_(std::move(parts)) {}

c10::intrusive_ptr<c10d::Backend> MultiNodeRoute::flat() const {
  const std::lock_guard lock(mutex_);
  return groups_.flat;
}

void MultiNodeRoute::Check(const Status& status, const char* call) {
  groups_.failures->ThrowIf(status, call, timeout_);
}

template <typename Body>
void MultiNodeRoute::Guarded(const char* call, std::atomic<std::uint64_t>& count, Body body) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) groups_.failures->Throw(call, why_broken_);
  }
  count.fetch_add(1, std::memory_order_relaxed);
  std::string why;
  try {
    body();
    return;
  } catch (const c10::DistBackendError& error) {
    why = error.what_without_backtrace();
  } catch (const std::exception& error) {
    why = "between the hosts (Gloo): " + std::string(error.what());
  }
  groups_.local->Abort(why);
  c10::intrusive_ptr<c10d::Backend> between;
  c10::intrusive_ptr<c10d::Backend> flat;
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    why_broken_ = why;
    between = std::move(groups_.between);
    flat = std::move(groups_.flat);
  }
  between.reset();
  flat.reset();
  if (why.rfind("fulldeck: ", 0) == 0) C10_THROW_ERROR(DistBackendError, why);
  groups_.failures->Throw(call, why);
}

void MultiNodeRoute::GlooAllReduce(c10d::Backend& group, const at::Tensor& data, Reduction reduction, int divisor) {
  c10d::AllreduceOptions options;
  options.timeout = timeout_;
  options.reduceOp = GlooOp(reduction);
  const auto run = [&](at::Tensor tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    group.allreduce(tensors, options)->wait();
    if (reduction == Reduction::kAvg) {
      if (tensor.is_floating_point()) {
        tensor.div_(divisor);
      } else {
        tensor.div_(divisor, "trunc");
      }
    }
  };
  constexpr std::int64_t kTopBit = std::numeric_limits<std::int64_t>::min();
  switch (data.scalar_type()) {
    case at::kBool:
      options.reduceOp = GlooOpOfBool(reduction);
      run(data.view(at::kByte));
      return;
    case at::kHalf:
    case at::kBFloat16: {
      at::Tensor wide = data.to(at::kFloat);
      run(wide);
      data.copy_(wide);
      return;
    }
    case at::kShort:
    case at::kUInt16: {
      at::Tensor wide = data.to(at::kInt);
      run(wide);
      data.copy_(wide);
      return;
    }
    case at::kUInt32: {
      at::Tensor wide = data.to(at::kLong);
      run(wide);
      data.copy_(wide);
      return;
    }
    case at::kUInt64: {
      TORCH_CHECK(reduction != Reduction::kAvg, "fulldeck: avg of uint64 between hosts is not supported.");
      at::Tensor same_bits = data.view(at::kLong);
      const bool ordered = reduction == Reduction::kMin || reduction == Reduction::kMax;
      if (ordered) same_bits.bitwise_xor_(kTopBit);
      run(same_bits);
      if (ordered) same_bits.bitwise_xor_(kTopBit);
      return;
    }
    default:
      run(data);
  }
}

void MultiNodeRoute::HierarchicalAllReduce(const at::Tensor& data, Reduction reduction, const char* call) {
  const std::int64_t count = data.numel();
  const int ranks = local_size();
  const std::int64_t slice = (count + ranks - 1) / ranks;
  const Datatype datatype = ElementOf(data.scalar_type()).datatype;
  const Reduction local_reduction = reduction == Reduction::kAvg ? Reduction::kSum : reduction;

  // All slices have the same length; slices that extend past the end use a temporary buffer.
  std::vector<at::Tensor> padded(Index(ranks));
  std::vector<Buffer> slices;
  for (int i = 0; i < ranks; ++i) {
    const std::int64_t begin = std::min(i * slice, count);
    const std::int64_t length = std::min(slice, count - begin);
    if (length == slice) {
      slices.push_back(HostBuffer(data, begin));
      continue;
    }
    padded[Index(i)] = at::zeros({slice}, data.options());
    padded[Index(i)].narrow(0, 0, length).copy_(data.narrow(0, begin, length));
    slices.push_back(HostBuffer(padded[Index(i)]));
  }
  at::Tensor mine = at::empty({slice}, data.options());
  const auto length = static_cast<std::uint64_t>(slice);
  Check(groups_.local->ReduceScatter(slices, HostBuffer(mine), length, datatype, local_reduction), call);
  GlooAllReduce(*groups_.between, mine, reduction, static_cast<int>(groups_.nodes.node_of.size()));
  Check(groups_.local->AllGather(HostBuffer(mine), slices, length, datatype), call);
  for (int i = 0; i < ranks; ++i) {
    if (!padded[Index(i)].defined()) continue;
    const std::int64_t begin = std::min(i * slice, count);
    data.narrow(0, begin, count - begin >= slice ? slice : count - begin)
        .copy_(padded[Index(i)].narrow(0, 0, std::min(slice, count - begin)));
  }
}

void MultiNodeRoute::ReduceEverywhere(const at::Tensor& data, Reduction reduction, const char* call) {
  if (groups_.between) {
    HierarchicalAllReduce(data, reduction, call);
  } else {
    GlooAllReduce(*groups_.flat, data, reduction, static_cast<int>(groups_.nodes.node_of.size()));
  }
}

void MultiNodeRoute::AllReduce(Operands& operands, const OperandRange& data, Reduction reduction) {
  Guarded(operands.call(), groups_.between ? hierarchical_ : flat_,
          [&] { ReduceEverywhere(operands.Host(data), reduction, operands.call()); });
}

void MultiNodeRoute::Reduce(Operands& operands, const OperandRange& data, Reduction reduction, int root) {
  Guarded(operands.call(), groups_.between ? hierarchical_ : flat_, [&] {
    const at::Tensor host = operands.Host(data);
    at::Tensor result = host.clone();
    ReduceEverywhere(result, reduction, operands.call());
    if (groups_.rank == root) host.copy_(result);
  });
}

void MultiNodeRoute::Broadcast(Operands& operands, const OperandRange& data, int root) {
  Guarded(operands.call(), groups_.between ? hierarchical_ : flat_, [&] {
    const at::Tensor host = operands.Host(data);
    std::vector<at::Tensor> tensors = {Bytes(host)};
    c10d::BroadcastOptions options;
    options.timeout = timeout_;
    if (!groups_.between) {
      options.rootRank = root;
      groups_.flat->broadcast(tensors, options)->wait();
      return;
    }
    const int place = groups_.nodes.LocalRank(root);
    if (groups_.nodes.LocalRank(groups_.rank) == place) {
      options.rootRank = groups_.nodes.node_of[Index(root)];
      groups_.between->broadcast(tensors, options)->wait();
    }
    Check(groups_.local->Broadcast(HostBuffer(host), data.count, data.operand->element().datatype, place),
          operands.call());
  });
}

void MultiNodeRoute::AllGather(Operands& operands, const OperandRange& input,
                               const std::vector<OperandRange>& outputs) {
  Guarded(operands.call(), groups_.between ? hierarchical_ : flat_, [&] {
    const at::Tensor mine = operands.Host(input);
    std::vector<at::Tensor> results;
    for (const OperandRange& range : outputs) results.push_back(operands.Host(range));
    c10d::AllgatherOptions options;
    options.timeout = timeout_;
    const std::int64_t bytes = mine.numel() * mine.element_size();
    // Gloo's output tensors must not share memory with the input, but an in-place all_gather does: copy the input.
    std::vector<at::Tensor> inputs = {Bytes(mine).clone()};
    if (!groups_.between) {
      std::vector<std::vector<at::Tensor>> lists(1);
      for (const at::Tensor& result : results) lists[0].push_back(Bytes(result));
      groups_.flat->allgather(lists, inputs, options)->wait();
      return;
    }
    // First all_gather among the members with the same local rank on every node, then among the local ranks of this
    // node. Layout: [local rank][node][bytes].
    const int nodes = groups_.nodes.nodes();
    const int places = local_size();
    at::Tensor column = at::empty({nodes, bytes}, at::kByte);
    std::vector<std::vector<at::Tensor>> lists(1);
    for (int host = 0; host < nodes; ++host) lists[0].push_back(column[host]);
    groups_.between->allgather(lists, inputs, options)->wait();
    at::Tensor everything = at::empty({places, nodes, bytes}, at::kByte);
    std::vector<Buffer> columns;
    for (int place = 0; place < places; ++place) columns.push_back(HostBuffer(everything, place * nodes * bytes));
    Check(groups_.local->AllGather(HostBuffer(column), columns, static_cast<std::uint64_t>(nodes * bytes),
                                   Datatype::kUint8),
          operands.call());
    for (int rank = 0; rank < static_cast<int>(results.size()); ++rank) {
      const int host = groups_.nodes.node_of[Index(rank)];
      Bytes(results[Index(rank)]).copy_(everything[groups_.nodes.LocalRank(rank)][host]);
    }
  });
}

void MultiNodeRoute::ReduceScatter(Operands& operands, const std::vector<OperandRange>& inputs,
                                   const OperandRange& output, Reduction reduction) {
  Guarded(operands.call(), groups_.between ? hierarchical_ : flat_, [&] {
    const at::Tensor result = operands.Host(output);
    std::vector<at::Tensor> given;
    for (const OperandRange& range : inputs) given.push_back(operands.Host(range));
    const int ranks = static_cast<int>(given.size());
    if (!groups_.between) {
      at::Tensor all = at::cat(given);
      GlooAllReduce(*groups_.flat, all, reduction, ranks);
      result.copy_(all.narrow(0, groups_.rank * result.numel(), result.numel()));
      return;
    }
    // For each local rank, the chunks of its members on all nodes: first summed on this node, then over all nodes.
    const int places = local_size();
    const int nodes = groups_.nodes.nodes();
    std::vector<at::Tensor> columns;
    std::vector<Buffer> buffers;
    for (int place = 0; place < places; ++place) {
      std::vector<at::Tensor> column;
      for (int host = 0; host < nodes; ++host) {
        column.push_back(given[Index(groups_.nodes.members[Index(host)][Index(place)])]);
      }
      columns.push_back(at::cat(column));
      buffers.push_back(HostBuffer(columns.back()));
    }
    at::Tensor mine = at::empty({nodes * result.numel()}, result.options());
    const Reduction local_reduction = reduction == Reduction::kAvg ? Reduction::kSum : reduction;
    Check(groups_.local->ReduceScatter(buffers, HostBuffer(mine), static_cast<std::uint64_t>(mine.numel()),
                                       ElementOf(mine.scalar_type()).datatype, local_reduction),
          operands.call());
    GlooAllReduce(*groups_.between, mine, reduction, ranks);
    result.copy_(mine.narrow(0, groups_.nodes.node_of[Index(groups_.rank)] * result.numel(), result.numel()));
  });
}

void MultiNodeRoute::Gather(Operands& operands, const OperandRange& input, const std::vector<OperandRange>& outputs,
                            int root) {
  Guarded(operands.call(), flat_, [&] {
    std::vector<at::Tensor> inputs = {Bytes(operands.Host(input)).clone()};
    std::vector<std::vector<at::Tensor>> lists;
    if (groups_.rank == root) {
      lists.emplace_back();
      for (const OperandRange& range : outputs) lists[0].push_back(Bytes(operands.Host(range)));
    }
    c10d::GatherOptions options;
    options.rootRank = root;
    options.timeout = timeout_;
    groups_.flat->gather(lists, inputs, options)->wait();
  });
}

void MultiNodeRoute::Scatter(Operands& operands, const std::vector<OperandRange>& inputs, const OperandRange& output,
                             int root) {
  Guarded(operands.call(), flat_, [&] {
    std::vector<at::Tensor> results = {Bytes(operands.Host(output))};
    std::vector<std::vector<at::Tensor>> lists;
    if (groups_.rank == root) {
      lists.emplace_back();
      for (const OperandRange& range : inputs) lists[0].push_back(Bytes(operands.Host(range)).clone());
    }
    c10d::ScatterOptions options;
    options.rootRank = root;
    options.timeout = timeout_;
    groups_.flat->scatter(results, lists, options)->wait();
  });
}

void MultiNodeRoute::AllToAll(Operands& operands, const std::vector<OperandRange>& inputs,
                              const std::vector<OperandRange>& outputs) {
  Guarded(operands.call(), flat_, [&] {
    std::vector<at::Tensor> given;
    std::vector<std::int64_t> given_bytes;
    for (const OperandRange& range : inputs) {
      given.push_back(Bytes(operands.Host(range)));
      given_bytes.push_back(given.back().numel());
    }
    std::vector<at::Tensor> taken;
    std::vector<std::int64_t> taken_bytes;
    std::int64_t sum = 0;
    for (const OperandRange& range : outputs) {
      taken.push_back(Bytes(operands.Host(range)));
      taken_bytes.push_back(taken.back().numel());
      sum += taken.back().numel();
    }
    at::Tensor from = at::cat(given);
    at::Tensor to = at::empty({sum}, at::kByte);
    c10d::AllToAllOptions options;
    options.timeout = timeout_;
    groups_.flat->alltoall_base(to, from, taken_bytes, given_bytes, options)->wait();
    std::int64_t begin = 0;
    for (at::Tensor& range : taken) {
      range.copy_(to.narrow(0, begin, range.numel()));
      begin += range.numel();
    }
  });
}

void MultiNodeRoute::Barrier() {
  Guarded("barrier", groups_.between ? hierarchical_ : flat_, [&] {
    c10d::BarrierOptions options;
    options.timeout = timeout_;
    if (!groups_.between) {
      groups_.flat->barrier(options)->wait();
      return;
    }
    Check(groups_.local->Barrier(), "barrier");
    if (groups_.local->rank() == 0) groups_.between->barrier(options)->wait();
    Check(groups_.local->Barrier(), "barrier");
  });
}

void MultiNodeRoute::SetTimeout(std::chrono::milliseconds timeout) {
  if (timeout == timeout_) return;
  timeout_ = timeout;
  groups_.local->SetTimeout(timeout);
}

void MultiNodeRoute::Abort(const std::string& reason) {
  groups_.local->Abort(reason);
}

PathCounts MultiNodeRoute::paths() const {
  return {.hierarchical = hierarchical_.load(std::memory_order_relaxed), .flat = flat_.load(std::memory_order_relaxed)};
}

std::string MultiNodeRoute::Describe() const {
  std::string text =
      std::to_string(groups_.nodes.node_of.size()) + " ranks on " + std::to_string(groups_.nodes.nodes()) + " hosts";
  if (groups_.nodes.even()) {
    text += ", " + std::to_string(local_size()) + " on each, Gloo between them";
  } else {
    text += ", not equally many on each: everything over Gloo between all ranks";
  }
  return text + "; this host: " + groups_.local->Describe();
}

}  // namespace fulldeck::torch_backend
