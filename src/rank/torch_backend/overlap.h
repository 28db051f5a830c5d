// Inputs and outputs of one call that share memory. The engine allows an input to be exactly this rank's own part of
// the output (or the other way round); any other overlap goes through a copy of the input.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fulldeck::torch_backend {

// The input, or a clone of it where it shares memory with one of the outputs other than by being `may_be` itself.
at::Tensor ApartFrom(const at::Tensor& input, const std::vector<at::Tensor>& outputs, const at::Tensor* may_be);
// The same for a large tensor of `parts` equal parts and a small one that may be part `own` of it; the answer replaces
// `input`, whichever of the two that is.
at::Tensor ApartFromParts(const at::Tensor& input, const at::Tensor& output, int parts, int own);

}  // namespace fulldeck::torch_backend
