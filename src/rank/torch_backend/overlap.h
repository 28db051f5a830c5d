// Inputs and outputs of one call that share memory. The engine allows an input to be exactly this rank's own chunk of
// the output (or the reverse); with any other overlap the input is copied first.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fulldeck::torch_backend {

// Returns the input, or a clone of it if it shares memory with one of the outputs and is not `may_be` itself.
at::Tensor ApartFrom(const at::Tensor& input, const std::vector<at::Tensor>& outputs, const at::Tensor* may_be);
// The same for a large tensor of `parts` equal chunks and a small one that may be chunk `own` of it. Use the result in
// place of `input`, whichever of the two that is.
at::Tensor ApartFromParts(const at::Tensor& input, const at::Tensor& output, int parts, int own);

}  // namespace fulldeck::torch_backend
