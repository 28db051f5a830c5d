#include "fulldeck/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/text.h"
#include "runtime/data_parallel/reducer_minor.h"

namespace fulldeck {
namespace {

constexpr double kMaxScale = 0x1p80;  // beyond it, even a scaled loss of 1 soon overflows float
constexpr std::uint64_t kMaxSkipped = 50;

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

// Formats doubles so that they are read back bit for bit.
std::string Exact(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

std::string Shown(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

// Reports only the first skipped step: a few at the start of a run are normal while the scale is found.
void ReportSkipped(DataParallelCore& model, double scale, double next) {
  if (!model.team().is_main()) return;
  const auto where = model.options().check_finite ? model.nonfinite() : std::nullopt;
  std::string gradient = "a gradient";
  if (where) gradient = "the gradient of " + base::Printable(where->parameter);
  if (where && where->rank >= 0) gradient += " on rank " + std::to_string(where->rank);
  base::Log(base::Severity::kWarning,
            gradient + " is not finite at scale " + Shown(scale) + ": this step is left out, and the scale is now " +
                Shown(next) +
                ". Some at the start are normal; later ones are counted and not reported (GradScaler::skipped).");
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled)
    : device_(device), was_enabled_(false), old_dtype_(dtype) {
  if (dtype != at::kHalf && dtype != at::kBFloat16 && dtype != at::kFloat)
    throw Error(std::string("autocast to ") + c10::toString(dtype) + " is impossible; use float16 or bfloat16.");
  const runtime::AutocastState before =
      runtime::EnterAutocast(device, {enabled && dtype != at::kFloat, dtype == at::kFloat ? at::kBFloat16 : dtype});
  was_enabled_ = before.enabled;
  old_dtype_ = before.dtype;
}
Autocast::~Autocast() {
  runtime::LeaveAutocast(device_, {was_enabled_, old_dtype_});
}

GradScaler::GradScaler(const GradScalerState& state) : state_(Checked(state)) {}

void GradScaler::Load(const GradScalerState& state) {
  state_ = Checked(state);
  unscaled_ = false;
}

std::string GradScaler::ToText() const {
  return "scale=" + Exact(state_.scale) + " growth_factor=" + Exact(state_.growth_factor) +
         " backoff_factor=" + Exact(state_.backoff_factor) +
         " growth_interval=" + std::to_string(state_.growth_interval) +
         " steps_since_overflow=" + std::to_string(state_.steps_since_overflow) +
         " enabled=" + (state_.enabled ? "1" : "0") + " skipped=" + std::to_string(skipped_);
}

void GradScaler::FromText(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw Error("\"" + base::Printable(std::string_view(text).substr(0, 200)) +
                "\" is no state of a gradient scaler: " + why + ".");
  };
  constexpr std::array<std::string_view, 7> kNames = {
      "scale", "growth_factor", "backoff_factor", "growth_interval", "steps_since_overflow", "enabled", "skipped"};
  std::array<double, 3> factors{};
  std::array<std::int64_t, 4> counts{};
  const auto parts = base::Split(text, ' ');
  if (parts.size() != kNames.size()) refuse("it has not seven fields");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name(kNames[i]);
    if (!parts[i].starts_with(name + "=")) refuse("field " + name + " is missing");
    const std::string value(parts[i].substr(name.size() + 1));
    if (i < factors.size()) {
      char* end = nullptr;
      factors[i] = std::strtod(value.c_str(), &end);
      if (value.empty() || *end != '\0') refuse("field " + name + " is not a number");
    } else {
      const auto number = base::ParseInteger<std::int64_t>(value);
      if (!number || *number < 0) refuse("field " + name + " is not a whole number");
      counts[i - factors.size()] = *number;
    }
  }
  if (counts[2] > 1) refuse("enabled must be 0 or 1");
  Load({factors[0], factors[1], factors[2], counts[0], counts[1], counts[2] == 1});
  skipped_ = static_cast<std::uint64_t>(counts[3]);
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
    // The reduction has already checked.
    overflowed_ = model.nonfinite().has_value();
    if (overflowed_) return;  // the gradients will not be used
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
      state_.scale = std::min(state_.scale * state_.growth_factor, kMaxScale);
      state_.steps_since_overflow = 0;
    }
  } else {
    // No scale is small enough, so this is not a 16-bit overflow. Continuing would train without any progress.
    if (++skipped_in_a_row_ >= kMaxSkipped) {
      model.CheckFinite();
      throw Error(std::to_string(skipped_in_a_row_) +
                  " steps in a row had gradients that are not finite, at scales down to " +
                  std::to_string(state_.scale) + ".");
    }
    const double next = std::max(state_.scale * state_.backoff_factor, std::numeric_limits<double>::min());
    if (skipped_ == 0) ReportSkipped(model, state_.scale, next);
    state_.scale = next;
    state_.steps_since_overflow = 0;
    ++skipped_;
  }
  model.StepDone();
  return takes;
}

}  // namespace fulldeck
