#include "torch_backend/overlap.h"

#include <cstdint>

namespace fulldeck::torch_backend {
namespace {

struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// From the first byte to one past the last, including gaps.
AddressRange AddressRangeOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + static_cast<std::uintptr_t>((last + 1) * tensor.element_size())};
}

bool ShareMemory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.device() != b.device() || a.layout() != at::kStrided ||
      b.layout() != at::kStrided) {
    return false;
  }
  const AddressRange one = AddressRangeOf(a);
  const AddressRange other = AddressRangeOf(b);
  return one.begin < other.end && other.begin < one.end;
}

bool AreTheSame(const at::Tensor& a, const at::Tensor& b) {
  return a.is_contiguous() && b.is_contiguous() && a.const_data_ptr() == b.const_data_ptr() && a.nbytes() == b.nbytes();
}

}  // namespace

at::Tensor ApartFrom(const at::Tensor& input, const std::vector<at::Tensor>& outputs, const at::Tensor* may_be) {
  for (const at::Tensor& output : outputs) {
    if (!ShareMemory(input, output)) continue;
    if (may_be != nullptr && output.is_same(*may_be) && AreTheSame(input, output)) continue;
    return input.clone();
  }
  return input;
}

at::Tensor ApartFromParts(const at::Tensor& input, const at::Tensor& output, int parts, int own) {
  if (!ShareMemory(input, output)) return input;
  const at::Tensor& large = input.numel() >= output.numel() ? input : output;
  const at::Tensor& small = input.numel() >= output.numel() ? output : input;
  if (large.is_contiguous() && small.is_contiguous()) {
    const auto part = reinterpret_cast<std::uintptr_t>(large.const_data_ptr()) +
                      large.nbytes() / static_cast<std::size_t>(parts) * static_cast<std::size_t>(own);
    if (part == reinterpret_cast<std::uintptr_t>(small.const_data_ptr())) return input;
  }
  return input.clone();
}

}  // namespace fulldeck::torch_backend
