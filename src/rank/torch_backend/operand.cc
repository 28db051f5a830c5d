#include "torch_backend/operand.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

namespace fulldeck::torch_backend {
namespace {

void CheckUsable(const char* call, const at::Tensor& tensor, bool written) {
  TORCH_CHECK(tensor.defined(), "fulldeck: ", call, " was given an undefined tensor.");
  TORCH_CHECK(tensor.layout() == at::kStrided, "fulldeck: ", call, " needs dense tensors, and this one has the layout ",
              tensor.layout(), ".");
  TORCH_CHECK(!tensor.is_quantized(), "fulldeck: ", call, " does not support quantized tensors.");
  TORCH_CHECK(!tensor.is_meta(), "fulldeck: ", call, " was given a tensor on the meta device, which has no data.");
  if (written) {
    TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "fulldeck: ", call,
                " cannot write to a tensor of which several elements are the same memory (sizes ", tensor.sizes(),
                ", strides ", tensor.strides(), "); give it a clone().");
  }
}

// Raw memory does not reflect a lazy conjugation or negation.
bool IsPlain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// As a one-dimensional tensor of engine elements.
at::Tensor NarrowTo(const at::Tensor& dense, const OperandRange& range) {
  const at::Tensor flat = FlatElements(dense);
  if (range.first == 0 && range.count == static_cast<std::uint64_t>(flat.numel())) return flat;
  return flat.narrow(0, static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.count));
}

}  // namespace

std::vector<OperandRange> SplitEvenly(Operand& operand, int parts) {
  const std::uint64_t count = operand.count() / static_cast<std::uint64_t>(parts);
  TORCH_INTERNAL_ASSERT(count * static_cast<std::uint64_t>(parts) == operand.count());
  std::vector<OperandRange> ranges;
  ranges.reserve(static_cast<std::size_t>(parts));
  for (int part = 0; part < parts; ++part)
    ranges.push_back({&operand, count * static_cast<std::uint64_t>(part), count});
  return ranges;
}

Operand& Operands::Add(const at::Tensor& tensor, bool read, bool written) {
  CheckUsable(call_, tensor, written);
  Operand& operand = operands_.emplace_back();
  operand.tensor_ = tensor;
  operand.read_ = read;
  operand.written_ = written;
  if (!tensor.device().is_cpu() && std::find(devices_.begin(), devices_.end(), tensor.device()) == devices_.end()) {
    devices_.push_back(tensor.device());
  }
  if (IsPlain(tensor)) {
    operand.dense_ = tensor;
  } else if (read) {
    operand.dense_ = tensor.resolve_conj().resolve_neg().contiguous();
  } else {
    operand.dense_ = at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
  }
  return operand;
}

Operand& Operands::Read(const at::Tensor& tensor) {
  return Add(tensor, true, false);
}
Operand& Operands::Write(const at::Tensor& tensor) {
  return Add(tensor, false, true);
}
Operand& Operands::Update(const at::Tensor& tensor) {
  return Add(tensor, true, true);
}

Operand& Operands::Update(const at::Tensor& tensor, const at::Tensor& values) {
  Operand& operand = Add(tensor, true, true);
  operand.dense_ = values.resolve_conj().resolve_neg().contiguous();
  return operand;
}

void Operands::Seal() {
  for (const c10::Device device : devices_) orders_.emplace_back(device);
}

const CallerOrder* Operands::OrderOf(c10::Device device) const {
  for (const CallerOrder& order : orders_) {
    if (order.device() == device) return &order;
  }
  TORCH_INTERNAL_ASSERT(false, "Operands::Seal was not called");
}

collectives::Buffer Operands::BufferOf(const OperandRange& range, CopyStreams& copy_streams) {
  const at::Tensor& dense = range.operand->dense_;
  if (dense.device().is_cpu()) {
    auto* memory = static_cast<std::byte*>(dense.data_ptr());
    return collectives::Buffer::Host(memory + range.first * collectives::BytesOf(range.operand->element().datatype));
  }
  stagings_.push_back(std::make_unique<TensorStaging>(NarrowTo(dense, range), *OrderOf(dense.device()), copy_streams));
  return collectives::Buffer::Staged(*stagings_.back());
}

at::Tensor Operands::Host(const OperandRange& range) {
  Operand& operand = *range.operand;
  const at::Tensor& dense = operand.dense_;
  if (dense.device().is_cpu()) return NarrowTo(dense, range);
  if (!operand.host_.defined()) {
    const c10::StreamGuard guard(OrderOf(dense.device())->stream());
    operand.host_ = at::empty_like(dense, dense.options().device(at::kCPU));
    if (operand.read_) operand.host_.copy_(dense);
  }
  return NarrowTo(operand.host_, range);
}

void Operands::Deliver() {
  for (const auto& staging : stagings_) staging->FinishAll();
  for (Operand& operand : operands_) {
    if (!operand.written_) continue;
    const bool from_host = operand.host_.defined();
    if (!from_host && operand.dense_.is_same(operand.tensor_)) continue;
    const at::Tensor& source = from_host ? operand.host_ : operand.dense_;
    if (operand.tensor_.device().is_cpu()) {
      operand.tensor_.copy_(source);
      continue;
    }
    const c10::Stream stream = OrderOf(operand.tensor_.device())->stream();
    const c10::StreamGuard guard(stream);
    operand.tensor_.copy_(source);
    stream.synchronize();
  }
}

}  // namespace fulldeck::torch_backend
