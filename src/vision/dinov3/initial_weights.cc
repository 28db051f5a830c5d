#include "dinov3/initial_weights.h"

#include <ATen/ops/empty.h>

#include <cmath>

namespace fulldeck::dinov3 {

at::Tensor NormalWeights(at::IntArrayRef shape, double deviation) {
  return at::empty(shape, at::kFloat).normal_(0, deviation).clamp_(-2, 2);
}

at::Tensor BeforeReluWeights(at::IntArrayRef shape) {
  double inputs = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) inputs *= static_cast<double>(shape[i]);
  return at::empty(shape, at::kFloat).normal_(0, std::sqrt(2 / inputs));
}

}  // namespace fulldeck::dinov3
