#include "model_spec/backbones.h"

#include <algorithm>

#include <array>
#include <utility>

namespace fulldeck::model_spec {
namespace {

using Row = std::pair<const char*, BackboneOptions>;
constexpr std::array<Row, 5> kBackbones = {{
    {"dinov3-tiny", {.dim = 96, .layers = 4, .heads = 3, .mlp = 384, .patch = 8}},
    {"dinov3-vits16", {.dim = 384, .layers = 12, .heads = 6, .mlp = 1536}},
    {"dinov3-vits16plus", {.dim = 384, .layers = 12, .heads = 6, .mlp = 1536, .gated = true}},
    {"dinov3-vitb16", {.dim = 768, .layers = 12, .heads = 12, .mlp = 3072}},
    {"dinov3-vitl16", {.dim = 1024, .layers = 24, .heads = 16, .mlp = 4096}},
}};

}  // namespace

const std::vector<std::string>& BackboneNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Row& row : kBackbones) result.emplace_back(row.first);
    return result;
  }();
  return names;
}

const BackboneOptions* FindBackbone(std::string_view name) {
  for (const Row& row : kBackbones) {
    if (name == row.first) return &row.second;
  }
  return nullptr;
}

std::int64_t ParameterCount(const BackboneOptions& config) {
  const std::int64_t dim = config.dim;
  const std::int64_t tokens = dim * (1 + 1 + config.registers);  // class, mask, registers
  const std::int64_t patches = dim * config.channels * config.patch * config.patch + dim;
  const std::int64_t norm = 2 * dim;
  const std::int64_t attention = 4 * dim * dim + 3 * dim;  // k has no bias
  const std::int64_t up = dim * config.mlp + config.mlp;
  const std::int64_t mlp = (config.gated ? 2 * up : up) + config.mlp * dim + dim;
  const std::int64_t layer = 2 * norm + attention + 2 * dim + mlp;
  return tokens + patches + config.layers * layer + norm;
}

std::int64_t AuxiliaryWidth(std::int64_t dim) {
  // As wide as an auxiliary FCN head usually is: a quarter of its input channels.
  return std::max<std::int64_t>(dim / 4, 16);
}

std::int64_t HeadParameterCount(const ModelOptions& model, Task task, std::int64_t classes, std::int64_t dim) {
  if (task == Task::kClassification) return (2 * dim + 1) * classes;
  std::int64_t count = 0;
  if (model.head == Head::kUp) {
    const std::int64_t width = model.head_channels;
    count = dim * width + width + 2 * (9 * width * width + 2 * width) + (width + 1) * classes;
  } else {
    count = (dim + 1) * classes;
  }
  if (model.auxiliary_weight > 0) {
    const std::int64_t width = AuxiliaryWidth(dim);
    count += 9 * dim * width + 2 * width + (width + 1) * classes;
  }
  return count;
}

}  // namespace fulldeck::model_spec
