// Maps torch's element types and reductions to the engine's.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "collectives/group.h"

namespace fulldeck::torch_backend {

// One element of a tensor is `count` elements of the engine: complex64 is two float32; a type that the engine does not
// support is treated as bytes.
struct Element {
  collectives::Datatype datatype = collectives::Datatype::kUint8;
  std::uint64_t count = 1;
  bool only_bytes = false;  // copied, never reduced
};
Element ElementOf(at::ScalarType type);

// PREMUL_SUM maps to kSum: the caller multiplies first.
collectives::Reduction ReductionOf(const c10d::ReduceOp& op);

// Throws c10::Error with the names of both if the engine cannot apply this reduction to this type: complex numbers
// support only sum, avg and premul_sum; floats have no bitwise reductions.
void CheckReducible(const char* call, at::ScalarType type, const c10d::ReduceOp& op);

// The tensor times the factor of a PREMUL_SUM, newly allocated.
at::Tensor Premultiplied(const at::Tensor& tensor, const c10d::ReduceOp& op);

}  // namespace fulldeck::torch_backend
