#include "fulldeck/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "training/reducer_minor.h"

namespace fulldeck {
namespace {

constexpr double kLargestScale = 0x1p80;  // beyond it a scaled loss of 1 is soon no float any more
constexpr std::uint64_t kMostSkipped = 50;

GradScalerState Checked(const GradScalerState& state) {
  const bool sane = state.scale > 0 && std::isfinite(state.scale) && state.growth_factor > 1 &&
                    std::isfinite(state.growth_factor) && state.backoff_factor > 0 && state.backoff_factor < 1 &&
                    state.growth_interval > 0 && state.steps_since_overflow >= 0;
  if (!sane)
    throw Error("a gradient scaler with scale " + std::to_string(state.scale) + ", growth " +
                std::to_string(state.growth_factor) + " every " + std::to_string(state.growth_interval) +
                " steps and backoff " + std::to_string(state.backoff_factor) +
                " cannot work: the scale must be positive, growth above 1, backoff between 0 and 1.");
  return state;
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled)
    : device_(device), was_enabled_(false), old_dtype_(dtype) {
  if (dtype != at::kHalf && dtype != at::kBFloat16 && dtype != at::kFloat)
    throw Error(std::string("autocast to ") + c10::toString(dtype) + " is impossible; use float16 or bfloat16.");
  const training::AutocastState before =
      training::EnterAutocast(device, {enabled && dtype != at::kFloat, dtype == at::kFloat ? at::kBFloat16 : dtype});
  was_enabled_ = before.enabled;
  old_dtype_ = before.dtype;
}
Autocast::~Autocast() {
  training::LeaveAutocast(device_, {was_enabled_, old_dtype_});
}

GradScaler::GradScaler(const GradScalerState& state) : state_(Checked(state)) {}

void GradScaler::Load(const GradScalerState& state) {
  state_ = Checked(state);
  unscaled_ = false;
}

at::Tensor GradScaler::Scale(const at::Tensor& loss) const {
  return state_.enabled ? loss * state_.scale : loss;
}

void GradScaler::Unscale(DataParallelCore& model) {
  if (unscaled_) return;
  model.CheckReduced();
  unscaled_ = true;
  overflowed_ = false;
  if (!state_.enabled) return;
  const c10::AutoGradMode no_grad(false);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& parameter : model.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const at::Tensor values = gradient.layout() == at::kStrided ? gradient : gradient._values();
    by_type[values.scalar_type()].push_back(values);
  }
  if (model.options().check_finite) {
    // The reduction has looked already.
    overflowed_ = model.nonfinite().has_value();
    if (overflowed_) return;  // nobody will use them
    for (auto& group : by_type) at::_foreach_mul_(group.second, 1.0 / state_.scale);
    return;
  }
  const c10::Device device = model.team().device;
  at::Tensor found = at::zeros({1}, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor inverse = at::full({1}, 1.0 / state_.scale, found.options());
  for (auto& group : by_type) at::_amp_foreach_non_finite_check_and_unscale_(group.second, found, inverse);
  overflowed_ = found.item<float>() != 0;
}

bool GradScaler::Step(DataParallelCore& model, torch::optim::Optimizer& optimizer) {
  Unscale(model);
  unscaled_ = false;
  if (!state_.enabled) {
    model.Step(optimizer);
    return true;
  }
  const bool takes = !overflowed_;
  if (takes) {
    model.CheckOptimizer(optimizer);
    optimizer.step();
    skipped_in_a_row_ = 0;
    if (++state_.steps_since_overflow == state_.growth_interval) {
      state_.scale = std::min(state_.scale * state_.growth_factor, kLargestScale);
      state_.steps_since_overflow = 0;
    }
  } else {
    // No scale is small enough: that is no overflow of 16 bits, and going on would be training in which nothing moves.
    if (++skipped_in_a_row_ >= kMostSkipped) {
      model.CheckFinite();
      throw Error(std::to_string(skipped_in_a_row_) +
                  " steps in a row had gradients that are not finite, at scales down to " +
                  std::to_string(state_.scale) + ".");
    }
    state_.scale = std::max(state_.scale * state_.backoff_factor, std::numeric_limits<double>::min());
    state_.steps_since_overflow = 0;
    ++skipped_;
  }
  model.StepDone();
  return takes;
}

}  // namespace fulldeck
