// The shapes of the backbones that a config can name: DINOv3's vision transformers. Not the models themselves (see
// dinov3/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_spec/options.h"

namespace fulldeck::model_spec {

struct BackboneOptions {
  std::int64_t dim = 384;
  std::int64_t layers = 12;
  std::int64_t heads = 6;
  std::int64_t mlp = 1536;
  bool gated = false;  // SwiGLU: down(silu(a(x)) · up(x)) instead of down(gelu(up(x)))
  std::int64_t registers = 4;
  std::int64_t patch = 16;
  std::int64_t channels = 3;
  double layer_scale = 1.0;  // initial value
  double norm_eps = 1e-5;
  double rope_theta = 100.0;
  double drop_path = 0.0;
  // Random rescaling of RoPE's coordinates in training, as the published models were trained; 0: none.
  double rope_rescale = 0.0;  // both axes, by a factor between 1/x and x

  bool operator==(const BackboneOptions&) const = default;
};

// "dinov3-tiny" (for demonstrations: no published weights, patches of 4 pixels), "dinov3-vits16", "dinov3-vits16plus",
// "dinov3-vitb16", "dinov3-vitl16".
const std::vector<std::string>& BackboneNames();
// nullptr: no backbone has this name.
const BackboneOptions* FindBackbone(std::string_view name);
// Of the built module, without the heads; a test compares them.
std::int64_t ParameterCount(const BackboneOptions& config);

// Channels of the auxiliary head on a backbone of this dimension.
std::int64_t AuxiliaryWidth(std::int64_t dim);
// Of the heads that a model with these options has on a backbone of this dimension.
std::int64_t HeadParameterCount(const ModelOptions& model, Task task, std::int64_t classes, std::int64_t dim);

}  // namespace fulldeck::model_spec
