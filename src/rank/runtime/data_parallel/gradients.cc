#include "fulldeck/gradients.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace fulldeck {

at::Tensor ClipGradNorm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) {
  if (!(max_norm >= 0)) throw Error("gradients cannot be clipped to a norm of " + std::to_string(max_norm) + ".");
  const c10::AutoGradMode no_grad(false);
  // One call of the foreach kernels needs tensors of one device and type.
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> groups;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const at::Tensor values = gradient.layout() == at::kStrided ? gradient : gradient._values();
    groups[{values.device().str(), values.scalar_type()}].push_back(values);
  }
  if (groups.empty()) return at::zeros({});
  const c10::Device device = groups.begin()->second.front().device();
  std::vector<at::Tensor> norms;
  for (const auto& group : groups) {
    for (const at::Tensor& norm : at::_foreach_norm(group.second, norm_type))
      norms.push_back(norm.to(device, norm.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  }
  const bool any_double =
      std::any_of(norms.begin(), norms.end(), [](const at::Tensor& norm) { return norm.scalar_type() == at::kDouble; });
  if (any_double) {
    for (at::Tensor& norm : norms) norm = norm.to(at::kDouble);
  }
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  const at::Tensor factor = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (auto& group : groups) {
    at::_foreach_mul_(group.second, factor.to(group.second.front().device(), group.first.second));
  }
  return total;
}

at::Tensor ClipGradNorm(DataParallelCore& model, double max_norm, double norm_type) {
  model.CheckReduced();
  return ClipGradNorm(model.parameters(), max_norm, norm_type);
}

}  // namespace fulldeck
