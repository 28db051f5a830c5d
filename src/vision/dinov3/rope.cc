#include "dinov3/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace fulldeck::dinov3 {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Images of many shapes (prediction) must not fill the memory with tables.
constexpr std::size_t kMaxTables = 32;

at::Tensor Rotate(const at::Tensor& tokens, const at::Tensor& cos, const at::Tensor& signed_sin, double direction) {
  // One type throughout: not every vendor's operators accept mixed types.
  const at::Tensor wide = tokens.to(cos.scalar_type());
  at::Tensor rotated = wide.mul(cos);
  rotated.addcmul_(at::roll(wide, {wide.size(-1) / 2}, {-1}), signed_sin, direction);
  return rotated.to(tokens.scalar_type());
}

// The transpose of a rotation is the inverse rotation, so backward needs none of the tokens.
struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens, const at::Tensor& cos,
                            const at::Tensor& signed_sin) {
    context->save_for_backward({cos, signed_sin});
    return Rotate(tokens, cos, signed_sin, 1);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    return {Rotate(gradients[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RotaryTables::RotaryTables(std::int64_t head_dim, double theta, std::int64_t prefix)
    : head_dim_(head_dim), theta_(theta), prefix_(prefix) {}

at::Tensor RotaryTables::Angles(std::int64_t rows, std::int64_t columns) const {
  const auto centers = [](std::int64_t count) {
    return at::arange(0.5, static_cast<double>(count), at::kFloat).div_(static_cast<double>(count));
  };
  const std::vector<at::Tensor> grid = at::meshgrid({centers(rows), centers(columns)}, "ij");
  const at::Tensor coordinates = at::stack(grid, -1).flatten(0, 1).mul_(2).sub_(1);  // [patches, (y, x)]
  const at::Tensor exponents = at::arange(0, 1, 4.0 / static_cast<double>(head_dim_), at::kFloat);
  const at::Tensor frequencies = at::pow(theta_, exponents).reciprocal_();
  const at::Tensor angles = coordinates.unsqueeze(-1).mul(2 * M_PI).mul(frequencies).flatten(1, 2);
  return at::cat({angles, angles}, 1);
}

RotaryTable RotaryTables::Get(std::int64_t rows, std::int64_t columns, const c10::Device& device, double rescale) {
  const auto key = std::make_tuple(rows, columns, device.type(), device.index());
  if (rescale == 1) {
    const auto found = kept_.find(key);
    if (found != kept_.end()) return found->second;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor angles = Angles(rows, columns).mul_(rescale);
  at::Tensor sin = angles.sin();
  sin.slice(1, 0, head_dim_ / 2).neg_();
  RotaryTable table;
  table.cos = at::cat({at::ones({prefix_, head_dim_}), angles.cos()}, 0).unsqueeze(1).to(device);
  table.signed_sin = at::cat({at::zeros({prefix_, head_dim_}), sin}, 0).unsqueeze(1).to(device);
  if (rescale == 1) {
    if (kept_.size() >= kMaxTables) kept_.clear();
    kept_.emplace(key, table);
  }
  return table;
}

at::Tensor ApplyRotary(const at::Tensor& tokens, const RotaryTable& table) {
  return Rotation::apply(tokens, table.cos, table.signed_sin);
}

}  // namespace fulldeck::dinov3
