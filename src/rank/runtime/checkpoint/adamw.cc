#include "fulldeck/adamw.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <map>
#include <tuple>
#include <vector>

namespace fulldeck {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

// Parameters that one call can update: of one device and type, and with the same step count.
struct Bundle {
  std::vector<at::Tensor> parameters, gradients, means, squares, greatest;
  std::int64_t step = 0;
};
using BundleKey = std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType, bool, std::int64_t>;

AdamWParamState& StateOf(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, bool amsgrad) {
  auto& place = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!place) {
    auto made = std::make_unique<AdamWParamState>();
    made->step(0);
    made->exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    made->exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    if (amsgrad) made->max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    place = std::move(made);
  }
  return static_cast<AdamWParamState&>(*place);
}

// The kernel accesses memory linearly, so all tensors must have the same layout.
bool LieAlike(const at::Tensor& parameter, const at::Tensor& gradient, const AdamWParamState& state) {
  const auto alike = [&](const at::Tensor& other) {
    return other.scalar_type() == parameter.scalar_type() && other.device() == parameter.device() &&
           other.strides() == parameter.strides();
  };
  return parameter.is_non_overlapping_and_dense() && alike(gradient) && alike(state.exp_avg()) &&
         alike(state.exp_avg_sq());
}

void StepAtOnce(Bundle& bundle, const AdamWOptions& options) {
  const at::Tensor step =
      at::full({}, static_cast<double>(bundle.step), bundle.parameters.front().options().dtype(at::kFloat));
  const std::vector<at::Tensor> steps(bundle.parameters.size(), step);
  at::_fused_adamw_(bundle.parameters, bundle.gradients, bundle.means, bundle.squares, bundle.greatest, steps,
                    options.lr(), std::get<0>(options.betas()), std::get<1>(options.betas()), options.weight_decay(),
                    options.eps(), options.amsgrad(), /*maximize=*/false);
}

void StepByLists(Bundle& bundle, const AdamWOptions& options) {
  const double beta1 = std::get<0>(options.betas()), beta2 = std::get<1>(options.betas());
  const double correction1 = 1 - std::pow(beta1, bundle.step), correction2 = 1 - std::pow(beta2, bundle.step);
  if (options.weight_decay() != 0) at::_foreach_mul_(bundle.parameters, 1 - options.lr() * options.weight_decay());
  at::_foreach_lerp_(bundle.means, bundle.gradients, 1 - beta1);
  at::_foreach_mul_(bundle.squares, beta2);
  at::_foreach_addcmul_(bundle.squares, bundle.gradients, bundle.gradients, 1 - beta2);
  if (options.amsgrad()) at::_foreach_maximum_(bundle.greatest, bundle.squares);
  std::vector<at::Tensor> spread = at::_foreach_sqrt(options.amsgrad() ? bundle.greatest : bundle.squares);
  at::_foreach_div_(spread, std::sqrt(correction2));
  at::_foreach_add_(spread, options.eps());
  at::_foreach_addcdiv_(bundle.parameters, bundle.means, spread, -options.lr() / correction1);
}

}  // namespace

bool AdamW::IsFusedOn(c10::DeviceType device) {
  const auto key = device == c10::kCPU           ? c10::DispatchKey::CPU
                   : device == c10::kCUDA        ? c10::DispatchKey::CUDA
                   : device == c10::kPrivateUse1 ? c10::DispatchKey::PrivateUse1
                                                 : c10::DispatchKey::Undefined;
  if (key == c10::DispatchKey::Undefined) return false;
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::_fused_adamw_", ""});
  return found && found->hasKernelForDispatchKey(key);
}

at::Tensor AdamW::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const c10::AutoGradMode with_grad(true);
    loss = closure();
  }
  std::map<c10::DeviceType, bool> fused;
  const auto is_fused_on = [&](c10::DeviceType device) {
    if (fused.count(device) == 0) fused[device] = IsFusedOn(device);
    return fused[device];
  };
  for (auto& group : param_groups()) {
    const auto& options = static_cast<AdamWOptions&>(group.options());
    std::map<BundleKey, Bundle> bundles;
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.is_sparse()) throw Error("AdamW does not take sparse gradients.");
      AdamWParamState& state = StateOf(*this, parameter, options.amsgrad());
      const bool at_once = is_fused_on(parameter.device().type()) && LieAlike(parameter, gradient, state);
      state.step(state.step() + 1);
      Bundle& bundle = bundles[{parameter.device().type(), parameter.device().index(), parameter.scalar_type(), at_once,
                                state.step()}];
      bundle.step = state.step();
      bundle.parameters.push_back(parameter);
      bundle.gradients.push_back(gradient);
      bundle.means.push_back(state.exp_avg());
      bundle.squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) bundle.greatest.push_back(state.max_exp_avg_sq());
    }
    for (auto& [key, bundle] : bundles) {
      if (std::get<3>(key)) {
        StepAtOnce(bundle, options);
      } else {
        StepByLists(bundle, options);
      }
    }
  }
  return loss;
}

}  // namespace fulldeck
