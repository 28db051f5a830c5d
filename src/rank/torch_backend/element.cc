#include "torch_backend/element.h"

#include <ATen/ops/mul.h>

namespace fulldeck::torch_backend {

using collectives::Datatype;
using collectives::Reduction;

Element ElementOf(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return {Datatype::kBool, 1, false};
    case at::kChar:
      return {Datatype::kInt8, 1, false};
    case at::kByte:
      return {Datatype::kUint8, 1, false};
    case at::kShort:
      return {Datatype::kInt16, 1, false};
    case at::kUInt16:
      return {Datatype::kUint16, 1, false};
    case at::kInt:
      return {Datatype::kInt32, 1, false};
    case at::kUInt32:
      return {Datatype::kUint32, 1, false};
    case at::kLong:
      return {Datatype::kInt64, 1, false};
    case at::kUInt64:
      return {Datatype::kUint64, 1, false};
    case at::kHalf:
      return {Datatype::kFloat16, 1, false};
    case at::kBFloat16:
      return {Datatype::kBfloat16, 1, false};
    case at::kFloat:
      return {Datatype::kFloat32, 1, false};
    case at::kDouble:
      return {Datatype::kFloat64, 1, false};
    case at::kComplexHalf:
      return {Datatype::kFloat16, 2, false};
    case at::kComplexFloat:
      return {Datatype::kFloat32, 2, false};
    case at::kComplexDouble:
      return {Datatype::kFloat64, 2, false};
    default:
      return {Datatype::kUint8, c10::elementSize(type), true};
  }
}

Reduction ReductionOf(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return Reduction::kSum;
    case c10d::ReduceOp::AVG:
      return Reduction::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::kProd;
    case c10d::ReduceOp::MIN:
      return Reduction::kMin;
    case c10d::ReduceOp::MAX:
      return Reduction::kMax;
    case c10d::ReduceOp::BAND:
      return Reduction::kAnd;
    case c10d::ReduceOp::BOR:
      return Reduction::kOr;
    case c10d::ReduceOp::BXOR:
      return Reduction::kXor;
    default:
      TORCH_CHECK(false, "fulldeck: reduce operation number ", static_cast<int>(op.op_), " is not known.");
  }
}

void CheckReducible(const char* call, at::ScalarType type, const c10d::ReduceOp& op) {
  const Element element = ElementOf(type);
  const Reduction reduction = ReductionOf(op);
  TORCH_CHECK(!element.only_bytes, "fulldeck: ", call, " cannot reduce tensors of type ", c10::toString(type),
              "; such tensors can only be moved (broadcast, all_gather, send, …).");
  if (c10::isComplexType(type)) {
    TORCH_CHECK(reduction == Reduction::kSum || reduction == Reduction::kAvg, "fulldeck: ", call, " does not support ",
                collectives::NameOf(reduction), " on complex tensors (", c10::toString(type), ").");
  }
  TORCH_CHECK(collectives::CanReduce(element.datatype, reduction), "fulldeck: ", call, " cannot do ",
              collectives::NameOf(reduction), " on tensors of type ", c10::toString(type), ".");
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) {
    TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type), "fulldeck: ", call,
                " with PREMUL_SUM needs a tensor of floats, not of ", c10::toString(type), ".");
    TORCH_CHECK(op.supplement_, "fulldeck: ", call, " with PREMUL_SUM has no factor.");
  }
}

at::Tensor Premultiplied(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (!supplement->tensor_factor.defined()) return at::mul(tensor, supplement->double_factor);
  return at::mul(tensor, supplement->tensor_factor.to(tensor.device(), tensor.scalar_type()));
}

}  // namespace fulldeck::torch_backend
