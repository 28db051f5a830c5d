// The tensors of one call: validated, and converted to what the engine accepts. Created in the caller's thread
// (necessary copies are made there, on its streams); used and delivered by the thread that runs the call.
//
// A non-contiguous tensor goes through a contiguous copy: data is always transferred in logical order, never in memory
// order.
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
  // Contiguous; a copy if the caller's tensor is not.
  const at::Tensor& dense() const { return dense_; }
  Element element() const { return ElementOf(dense_.scalar_type()); }
  // In engine elements.
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

// A range of an operand, in engine elements.
struct OperandRange {
  Operand* operand = nullptr;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
inline OperandRange Whole(Operand& operand) {
  return {&operand, 0, operand.count()};
}
// Splits the operand into `parts` chunks of equal length; its length must be divisible by `parts`.
std::vector<OperandRange> SplitEvenly(Operand& operand, int parts);

class Operands {
 public:
  // `call` is for messages: "all_reduce".
  explicit Operands(const char* call) : call_(call) {}

  // In the caller's thread. Throw c10::Error if the tensor cannot be used: sparse, quantized, without data, or written
  // to while some of its elements alias each other.
  Operand& Read(const at::Tensor& tensor);
  Operand& Write(const at::Tensor& tensor);
  Operand& Update(const at::Tensor& tensor);
  // Uses `values` in place of the contents of `tensor` (PREMUL_SUM).
  Operand& Update(const at::Tensor& tensor, const at::Tensor& values);
  // Call it after the last tensor.
  void Seal();

  // In the thread that runs the call. Where the engine finds the range. Call it once for a range that is both input and
  // output.
  collectives::Buffer BufferOf(const OperandRange& range, CopyStreams& copy_streams);
  // The range in host memory, for routes that support nothing else: a one-dimensional tensor of engine elements. It is
  // the memory of dense() itself, or a copy that Deliver copies back.
  at::Tensor Host(const OperandRange& range);
  // Call it after a successful call: copies results to their destination, and returns when they are there.
  void Deliver();

  bool all_on_host() const { return orders_.empty(); }
  const char* call() const { return call_; }

 private:
  Operand& Add(const at::Tensor& tensor, bool read, bool written);
  const CallerOrder* OrderOf(c10::Device device) const;

  const char* call_;
  std::deque<Operand> operands_;  // a deque, so that references remain valid
  std::deque<CallerOrder> orders_;
  std::vector<std::unique_ptr<TensorStaging>> stagings_;
  std::vector<c10::Device> devices_;
};

}  // namespace fulldeck::torch_backend
