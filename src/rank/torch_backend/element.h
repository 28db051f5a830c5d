// How the elements and the reductions of torch are told to the engine.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "collectives/group.h"

namespace fulldeck::torch_backend {

// One element of a tensor is `count` elements of the engine: complex64 is two float32, and a type that the engine does
// not know is its bytes.
struct Element {
  collectives::Datatype datatype = collectives::Datatype::kUint8;
  std::uint64_t count = 1;
  bool only_bytes = false;  // moved, never reduced
};
Element ElementOf(at::ScalarType type);

// PREMUL_SUM is kSum: the caller multiplies first.
collectives::Reduction ReductionOf(const c10d::ReduceOp& op);

// Throws (c10::Error) with the names of both, where the engine cannot reduce this type so: complex numbers know sum,
// avg and premul_sum alone, floats no bits.
void CheckReducible(const char* call, at::ScalarType type, const c10d::ReduceOp& op);

// The tensor times the factor of a PREMUL_SUM, in memory of its own.
at::Tensor Premultiplied(const at::Tensor& tensor, const c10d::ReduceOp& op);

}  // namespace fulldeck::torch_backend
