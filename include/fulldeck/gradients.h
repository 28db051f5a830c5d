// Clipping of gradients, after they were averaged over the ranks: every rank sees the same norm and scales alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fulldeck/data_parallel.h"
#include "fulldeck/error.h"

namespace fulldeck {

// Scales the gradients of the parameters, in place, so that all together have at most this norm: the norm_type-th root
// of the sum of powers, or the largest for infinity. Parameters without a gradient do not count. Returns the norm as it
// was, on the gradients' device: nothing waits for a card before the caller reads it. A norm that is not finite makes
// the gradients NaN, as in torch: check before.
FULLDECK_RUNTIME_API at::Tensor ClipGradNorm(const std::vector<at::Tensor>& parameters, double max_norm,
                                             double norm_type = 2.0);
// Of a wrapped module: refuses (Refusal) gradients that were not reduced since the last step, whose norm would be
// another one on every rank.
FULLDECK_RUNTIME_API at::Tensor ClipGradNorm(DataParallelCore& model, double max_norm, double norm_type = 2.0);

}  // namespace fulldeck
