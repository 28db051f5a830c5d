// What weights are before anything has been learnt, from torch's generator of the host: ranks with the same seed have
// the same.
#pragma once

#include <ATen/core/Tensor.h>

namespace fulldeck::dinov3 {

// Normal, cut at ±2, as the published models began.
at::Tensor NormalWeights(at::IntArrayRef shape, double deviation = 0.02);
// For a convolution before ReLU: normal, and wide enough that activations neither grow nor shrink.
at::Tensor BeforeReluWeights(at::IntArrayRef shape);

}  // namespace fulldeck::dinov3
