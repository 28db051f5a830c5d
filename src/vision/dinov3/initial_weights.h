// Initial random weights from torch's CPU generator: the same on all ranks with the same seed.
#pragma once

#include <ATen/core/Tensor.h>

namespace fulldeck::dinov3 {

// Normal, clamped to [−2, 2], as the published models were initialized.
at::Tensor NormalWeights(at::IntArrayRef shape, double deviation = 0.02);
// For a convolution before ReLU: normal, with a deviation that keeps the scale of the activations.
at::Tensor BeforeReluWeights(at::IntArrayRef shape);

}  // namespace fulldeck::dinov3
