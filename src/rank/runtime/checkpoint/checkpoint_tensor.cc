#include "runtime/checkpoint/checkpoint_tensor.h"

#include <ATen/ops/empty.h>

#include <array>
#include <utility>

#include "fulldeck/error.h"

namespace fulldeck::runtime {
namespace {

using checkpoint::Dtype;

constexpr std::array<std::pair<Dtype, c10::ScalarType>, 16> kTypes = {{
    {Dtype::kBool, c10::kBool},
    {Dtype::kU8, c10::kByte},
    {Dtype::kI8, c10::kChar},
    {Dtype::kF8E5M2, c10::kFloat8_e5m2},
    {Dtype::kF8E4M3, c10::kFloat8_e4m3fn},
    {Dtype::kI16, c10::kShort},
    {Dtype::kU16, c10::kUInt16},
    {Dtype::kF16, c10::kHalf},
    {Dtype::kBf16, c10::kBFloat16},
    {Dtype::kI32, c10::kInt},
    {Dtype::kU32, c10::kUInt32},
    {Dtype::kF32, c10::kFloat},
    {Dtype::kI64, c10::kLong},
    {Dtype::kU64, c10::kUInt64},
    {Dtype::kF64, c10::kDouble},
    {Dtype::kC64, c10::kComplexFloat},
}};

template <typename Sizes>
std::string Described(std::string_view type, const Sizes& sizes) {
  std::string text(type);
  text += " [";
  const char* comma = "";
  for (const auto size : sizes) {
    text += comma;
    text += std::to_string(size);
    comma = ", ";
  }
  text += "]";
  return text;
}

}  // namespace

std::optional<Dtype> DtypeOf(const at::Tensor& tensor) {
  for (const auto& [dtype, type] : kTypes) {
    if (type == tensor.scalar_type()) return dtype;
  }
  return std::nullopt;
}

c10::ScalarType ScalarTypeOf(Dtype dtype) {
  for (const auto& [known, type] : kTypes) {
    if (known == dtype) return type;
  }
  throw Error("torch has no type for " + std::string(checkpoint::NameOf(dtype)) + " here.");
}

std::vector<std::uint64_t> ShapeOf(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

std::vector<std::int64_t> SizesOf(const checkpoint::TensorEntry& entry) {
  return {entry.shape.begin(), entry.shape.end()};
}

bool IsPlain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void CheckSavable(const std::string& part, const SavedTensor& tensor) {
  const std::string what = "\"" + tensor.name + "\" of \"" + part + "\" cannot be saved: ";
  if (!tensor.tensor.defined()) throw Error(what + "there is no tensor.");
  if (tensor.tensor.layout() != c10::kStrided) throw Error(what + "it is sparse. Save its values and indices instead.");
  if (tensor.tensor.is_meta()) throw Error(what + "it is on the device 'meta' and has no data.");
  if (!DtypeOf(tensor.tensor))
    throw Error(what + "safetensors has no type for " + std::string(c10::toString(tensor.tensor.scalar_type())) + ".");
}

at::Tensor EmptyLike(const checkpoint::TensorEntry& entry) {
  return at::empty(SizesOf(entry), at::TensorOptions().dtype(ScalarTypeOf(entry.dtype)).device(c10::kCPU));
}

std::string Describe(const checkpoint::TensorEntry& entry) {
  return Described(checkpoint::NameOf(entry.dtype), entry.shape);
}

std::string Describe(const at::Tensor& tensor) {
  const auto dtype = DtypeOf(tensor);
  return Described(dtype ? checkpoint::NameOf(*dtype) : c10::toString(tensor.scalar_type()), tensor.sizes());
}

}  // namespace fulldeck::runtime
