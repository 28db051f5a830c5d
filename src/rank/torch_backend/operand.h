// The tensors of one call: checked, and turned into what the engine takes. Made in the caller's thread (what has to be
// copied there is copied there, on its streams), used and delivered by the thread that does the call.
//
// A tensor that is not contiguous goes through a contiguous one: data is never moved as the memory happens to lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torch_backend/element.h"
#include "torch_backend/tensor_staging.h"

namespace fulldeck::torch_backend {

// One tensor of a call.
class Operand {
 public:
  // Contiguous. Not the caller's own where that is not contiguous.
  const at::Tensor& dense() const { return dense_; }
  Element element() const { return ElementOf(dense_.scalar_type()); }
  // In elements of the engine.
  std::uint64_t count() const { return static_cast<std::uint64_t>(dense_.numel()) * element().count; }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(dense_.numel()) * dense_.element_size(); }

 private:
  friend class Operands;
  at::Tensor tensor_;
  at::Tensor dense_;
  at::Tensor host_;  // see Operands::Host
  bool read_ = false;
  bool written_ = false;
};

// A stretch of an operand, in elements of the engine.
struct OperandRange {
  Operand* operand = nullptr;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
inline OperandRange Whole(Operand& operand) {
  return {&operand, 0, operand.count()};
}
// The operand cut into `parts` of equal length, which it must be divisible into.
std::vector<OperandRange> SplitEvenly(Operand& operand, int parts);

class Operands {
 public:
  // `call` is for messages: "all_reduce".
  explicit Operands(const char* call) : call_(call) {}

  // In the caller's thread. Throw c10::Error where such a tensor cannot be used: sparse, quantized, without data, or
  // written to while several of its elements are one in memory.
  Operand& Read(const at::Tensor& tensor);
  Operand& Write(const at::Tensor& tensor);
  Operand& Update(const at::Tensor& tensor);
  // `values` in the place of what `tensor` holds (PREMUL_SUM).
  Operand& Update(const at::Tensor& tensor, const at::Tensor& values);
  // After the last tensor.
  void Seal();

  // In the thread of the call. Where the engine finds the range. One that is both input and output is asked for once.
  collectives::Buffer BufferOf(const OperandRange& range, CopyStreams& copy_streams);
  // The range in host memory, for routes that know nothing else: one dimension, of elements as the engine has them.
  // Memory of dense() itself, or of a copy that Deliver copies back.
  at::Tensor Host(const OperandRange& range);
  // After a call that was well done: writes go where they belong, and are there when this returns.
  void Deliver();

  bool all_on_host() const { return orders_.empty(); }
  const char* call() const { return call_; }

 private:
  Operand& Add(const at::Tensor& tensor, bool read, bool written);
  const CallerOrder* OrderOf(c10::Device device) const;

  const char* call_;
  std::deque<Operand> operands_;  // references stay good
  std::deque<CallerOrder> orders_;
  std::vector<std::unique_ptr<TensorStaging>> stagings_;
  std::vector<c10::Device> devices_;
};

}  // namespace fulldeck::torch_backend
