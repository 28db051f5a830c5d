// Clipping of gradients after they were averaged over the ranks: every rank computes the same norm and scales by the
// same factor.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fulldeck/data_parallel.h"
#include "fulldeck/error.h"

namespace fulldeck {

// Scales the gradients of the parameters in place, so that their total norm is at most max_norm: the norm_type-th root
// of the sum of powers, or the largest absolute value for infinity. Skips parameters without a gradient. Returns the
// norm before clipping, on the gradients' device, so nothing waits for a card until the caller reads it. A non-finite
// norm makes the gradients NaN, as in torch: check first.
FULLDECK_RUNTIME_API at::Tensor ClipGradNorm(const std::vector<at::Tensor>& parameters, double max_norm,
                                             double norm_type = 2.0);
// For a wrapped module: refuses (Refusal) gradients that were not reduced since the last step, because their norm would
// differ between ranks.
FULLDECK_RUNTIME_API at::Tensor ClipGradNorm(DataParallelCore& model, double max_norm, double norm_type = 2.0);

}  // namespace fulldeck
