// The collectives that reduce: all_reduce, reduce and reduce_scatter in all their variants.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "torch_backend/overlap.h"
#include "torch_backend/quiet_dispatch.h"
#include "torch_backend/start_call.h"

namespace fulldeck::torch_backend {
namespace {

using collectives::Reduction;

// Small tensors up to this total size are joined into one call.
constexpr std::uint64_t kMaxJoinedBytes = 1024 * 1024;

const at::Tensor& OneTensor(const char* call, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "fulldeck: ", call, " requires a single-element tensor list, and was given ",
              tensors.size(), " tensors.");
  return tensors[0];
}

Operand& Reduced(Operands& operands, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  CheckReducible(operands.call(), tensor.scalar_type(), op);
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return operands.Update(tensor);
  return operands.Update(tensor, Premultiplied(tensor, op));
}

bool CanGoTogether(const std::vector<at::Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.device().is_cpu() || tensor.scalar_type() != tensors[0].scalar_type()) return false;
    bytes += tensor.nbytes();
  }
  return tensors.size() > 1 && bytes <= kMaxJoinedBytes;
}

// What every rank publishes about its sparse tensor.
struct SparseShape {
  static constexpr std::int64_t kMaxDimensions = 64;
  static constexpr std::int64_t kWords = 3 + kMaxDimensions;

  static at::Tensor Of(const at::Tensor& sparse) {
    TORCH_CHECK(sparse.dim() <= kMaxDimensions, "fulldeck: all_reduce of a sparse tensor of ", sparse.dim(),
                " dimensions is not supported; ", kMaxDimensions, " is the most.");
    at::Tensor words = at::zeros({kWords}, at::kLong);
    auto* word = words.data_ptr<std::int64_t>();
    word[0] = sparse._nnz();
    word[1] = sparse.sparse_dim();
    word[2] = sparse.dim();
    std::copy(sparse.sizes().begin(), sparse.sizes().end(), word + 3);
    return words;
  }
};

at::Tensor GatherRows(Route& route, const at::Tensor& mine, int ranks) {
  Operands operands("all_reduce");
  at::Tensor all = at::empty({ranks, mine.numel()}, mine.options());
  const OperandRange input = Whole(operands.Read(mine));
  const std::vector<OperandRange> outputs = SplitEvenly(operands.Write(all), ranks);
  operands.Seal();
  route.AllGather(operands, input, outputs);
  return all;
}

// The sum of the ranks' sparse tensors: gathers all indices and values, padded to the longest, and adds them.
at::Tensor SumOfSparse(Route& route, const at::Tensor& mine, int ranks) {
  const at::Tensor shapes = GatherRows(route, SparseShape::Of(mine), ranks);
  std::int64_t most = 0;
  for (int other = 0; other < ranks; ++other) {
    most = std::max(most, shapes[other][0].item<std::int64_t>());
    TORCH_CHECK(shapes[other].slice(0, 1).equal(shapes[0].slice(0, 1)), "fulldeck: all_reduce of sparse tensors: rank ",
                other, " has other sizes or sparse dimensions than rank 0.");
  }
  const std::int64_t own = mine._nnz();
  at::Tensor indices = at::zeros({most, mine.sparse_dim()}, at::kLong);
  indices.narrow(0, 0, own).copy_(mine._indices().t());
  std::vector<std::int64_t> value_sizes = {most};
  for (std::int64_t i = mine.sparse_dim(); i < mine.dim(); ++i) value_sizes.push_back(mine.size(i));
  at::Tensor values = at::zeros(value_sizes, mine._values().options());
  values.narrow(0, 0, own).copy_(mine._values());

  const at::Tensor all_indices = GatherRows(route, indices, ranks).view({ranks, most, mine.sparse_dim()});
  value_sizes.insert(value_sizes.begin(), ranks);
  const at::Tensor all_values = GatherRows(route, values, ranks).view(value_sizes);
  std::vector<at::Tensor> index_parts;
  std::vector<at::Tensor> value_parts;
  for (int other = 0; other < ranks; ++other) {
    const auto count = shapes[other][0].item<std::int64_t>();
    index_parts.push_back(all_indices[other].narrow(0, 0, count));
    value_parts.push_back(all_values[other].narrow(0, 0, count));
  }
  return at::sparse_coo_tensor(at::cat(index_parts).t().contiguous(), at::cat(value_parts), mine.sizes()).coalesce();
}

}  // namespace

template <typename CallOptions>
c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::AllReduceSparse(const at::Tensor& tensor,
                                                                    const CallOptions& options) {
  TORCH_CHECK(tensor.layout() == at::kSparse, "fulldeck: all_reduce does not support tensors of the layout ",
              tensor.layout(), ".");
  TORCH_CHECK(options.reduceOp.op_ == c10d::ReduceOp::SUM,
              "fulldeck: unsupported reduction operation (all_reduce of sparse tensors only works with ReduceOp.SUM)");
  CheckReducible("all_reduce", tensor.scalar_type(), options.reduceOp);
  const at::Tensor mine = tensor.coalesce().cpu();
  // Results are written back on the caller's stream.
  std::optional<c10::Stream> stream;
  if (!tensor.device().is_cpu())
    stream = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
  return Start(c10d::OpType::_ALLREDUCE_SPARSE, "sparse_all_reduce", {tensor}, {tensor}, options,
               std::make_shared<Operands>("all_reduce"),
               [tensor, mine, stream, ranks = size_](Route& route, Operands&) {
                 const at::Tensor sum = SumOfSparse(route, mine, ranks);
                 const c10::OptionalStreamGuard guard(stream);
                 at::Tensor(tensor).copy_(sum.to(tensor.device()));
                 if (stream) stream->synchronize();
               });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                              const c10d::AllreduceOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& tensor = OneTensor("all_reduce", tensors);
  if (tensor.defined() && tensor.layout() != at::kStrided) return AllReduceSparse(tensor, options);
  auto operands = std::make_shared<Operands>("all_reduce");
  const OperandRange data = Whole(Reduced(*operands, tensor, options.reduceOp));
  return Start(c10d::OpType::ALLREDUCE, "all_reduce", tensors, tensors, options, std::move(operands),
               [data, reduction = ReductionOf(options.reduceOp)](Route& route, Operands& on) {
                 route.AllReduce(on, data, reduction);
               });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                                     const c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const QuietDispatch quiet;
  TORCH_CHECK(!tensors.empty(), "fulldeck: all_reduce_coalesced requires non-empty tensor list.");
  auto operands = std::make_shared<Operands>("all_reduce_coalesced");
  std::vector<OperandRange> ranges;
  for (const at::Tensor& tensor : tensors) ranges.push_back(Whole(Reduced(*operands, tensor, options.reduceOp)));
  const Reduction reduction = ReductionOf(options.reduceOp);
  Body body = [ranges, reduction](Route& route, Operands& on) {
    for (const OperandRange& range : ranges) route.AllReduce(on, range, reduction);
  };
  if (CanGoTogether(tensors)) {
    body = [ranges, reduction](Route& route, Operands& on) {
      std::vector<at::Tensor> flats;
      for (const OperandRange& range : ranges) flats.push_back(on.Host(range));
      Operands together(on.call());
      at::Tensor joined = at::cat(flats);
      const OperandRange all = Whole(together.Update(joined));
      together.Seal();
      route.AllReduce(together, all, reduction);
      std::int64_t begin = 0;
      for (at::Tensor& flat : flats) {
        flat.copy_(joined.narrow(0, begin, flat.numel()));
        begin += flat.numel();
      }
    };
  }
  return Start(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce", tensors, tensors, options, std::move(operands),
               std::move(body));
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::reduce(std::vector<at::Tensor>& tensors,
                                                           const c10d::ReduceOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& tensor = OneTensor("reduce", tensors);
  CheckRoot("reduce", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  auto operands = std::make_shared<Operands>("reduce");
  CheckReducible("reduce", tensor.scalar_type(), options.reduceOp);
  const bool premultiply = options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM;
  // Only the root's tensor is written.
  Operand& operand = rank_ == root ? Reduced(*operands, tensor, options.reduceOp)
                                   : operands->Read(premultiply ? Premultiplied(tensor, options.reduceOp) : tensor);
  const OperandRange data = Whole(operand);
  return Start(c10d::OpType::REDUCE, "reduce", tensors, tensors, options, std::move(operands),
               [data, root, reduction = ReductionOf(options.reduceOp)](Route& route, Operands& on) {
                 route.Reduce(on, data, reduction, root);
               });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                                   std::vector<std::vector<at::Tensor>>& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
  const QuietDispatch quiet;
  const at::Tensor& output = OneTensor("reduce_scatter", outputs);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_),
              "fulldeck: reduce_scatter requires one list of ", size_, " input tensors, one for each rank.");
  CheckReducible("reduce_scatter", output.scalar_type(), options.reduceOp);
  const bool premultiply = options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM;
  auto operands = std::make_shared<Operands>("reduce_scatter");
  std::vector<OperandRange> from;
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor& input = inputs[0][static_cast<std::size_t>(rank)];
    TORCH_CHECK(input.scalar_type() == output.scalar_type() && input.numel() == output.numel(),
                "fulldeck: reduce_scatter requires inputs of the output's type and size; that for rank ", rank, " is ",
                input.toString(), " ", input.sizes(), ", the output ", output.toString(), " ", output.sizes(), ".");
    const bool own_part = rank == rank_;
    from.push_back(Whole(operands->Read(premultiply ? Premultiplied(input, options.reduceOp)
                                                    : ApartFrom(input, {output}, own_part ? &output : nullptr))));
  }
  const OperandRange to = Whole(operands->Write(output));
  return Start(c10d::OpType::REDUCE_SCATTER, "reduce_scatter", inputs[0], outputs, options, std::move(operands),
               [from, to, reduction = ReductionOf(options.reduceOp)](Route& route, Operands& on) {
                 route.ReduceScatter(on, from, to, reduction);
               });
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                         const c10d::ReduceScatterOptions& options) {
  std::vector<at::Tensor> outputs = {output};
  std::vector<at::Tensor> inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> SharedMemoryBackend::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const c10d::ReduceScatterOptions& options) {
  const QuietDispatch quiet;
  TORCH_CHECK(outputs.size() == inputs.size() && !inputs.empty(),
              "fulldeck: reduce_scatter_tensor requires as many outputs as inputs, and at least one.");
  auto operands = std::make_shared<Operands>("reduce_scatter_tensor");
  const bool premultiply = options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM;
  std::vector<std::pair<std::vector<OperandRange>, OperandRange>> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    const at::Tensor& output = outputs[i];
    CheckReducible("reduce_scatter_tensor", input.scalar_type(), options.reduceOp);
    TORCH_CHECK(input.scalar_type() == output.scalar_type(),
                "fulldeck: reduce_scatter_tensor requires tensors of one type: ", input.toString(), " and ",
                output.toString(), ".");
    TORCH_CHECK(input.numel() == output.numel() * size_, "fulldeck: reduce_scatter_tensor: the input must be ", size_,
                " times as large as the output; they have ", input.numel(), " and ", output.numel(), " elements.");
    const at::Tensor apart =
        premultiply ? Premultiplied(input, options.reduceOp) : ApartFromParts(input, output, size_, rank_);
    Operand& from = operands->Read(apart);
    calls.emplace_back(SplitEvenly(from, size_), Whole(operands->Write(output)));
  }
  return Start(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", inputs, outputs, options, std::move(operands),
               [calls, reduction = ReductionOf(options.reduceOp)](Route& route, Operands& on) {
                 for (const auto& call : calls) route.ReduceScatter(on, call.first, call.second, reduction);
               });
}

}  // namespace fulldeck::torch_backend
