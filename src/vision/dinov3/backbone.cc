#include "dinov3/backbone.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "dinov3/initial_weights.h"
#include "dinov3/rope.h"
#include "fulldeck/error.h"
#include "fulldeck/random.h"

namespace fulldeck::dinov3 {
namespace {

// No sample has this number: for random values of a whole step.
constexpr std::uint64_t kWholeStep = std::numeric_limits<std::uint64_t>::max();

// A weight and an optional bias, registered under these names: a linear layer, a norm or a convolution.
struct WeightAndBias : torch::nn::Module {
  WeightAndBias(const at::Tensor& of_weight, const at::Tensor& of_bias) {
    weight = register_parameter("weight", of_weight);
    if (of_bias.defined()) bias = register_parameter("bias", of_bias);
  }
  at::Tensor weight, bias;
};
using WeightAndBiasPtr = std::shared_ptr<WeightAndBias>;

WeightAndBiasPtr AddLinear(torch::nn::Module& to, const char* name, std::int64_t in, std::int64_t out,
                           bool bias = true) {
  return to.register_module(
      name, std::make_shared<WeightAndBias>(NormalWeights({out, in}), bias ? at::zeros({out}) : at::Tensor()));
}
WeightAndBiasPtr AddNorm(torch::nn::Module& to, const char* name, std::int64_t dim) {
  return to.register_module(name, std::make_shared<WeightAndBias>(at::ones({dim}), at::zeros({dim})));
}
at::Tensor Linear(const WeightAndBiasPtr& linear, const at::Tensor& input) {
  return at::linear(input, linear->weight, linear->bias);
}

struct Layer : torch::nn::Module {
  explicit Layer(const model_spec::BackboneOptions& config)
      : heads(config.heads), gated(config.gated), eps(config.norm_eps) {
    const std::int64_t dim = config.dim;
    norm1 = AddNorm(*this, "norm1", dim);
    const auto attention = register_module("attention", std::make_shared<torch::nn::Module>("Attention"));
    q = AddLinear(*attention, "q_proj", dim, dim);
    k = AddLinear(*attention, "k_proj", dim, dim, /*bias=*/false);
    v = AddLinear(*attention, "v_proj", dim, dim);
    o = AddLinear(*attention, "o_proj", dim, dim);
    scale1 = AddScale("layer_scale1", config);
    norm2 = AddNorm(*this, "norm2", dim);
    const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>("Mlp"));
    if (gated) gate_layer = AddLinear(*mlp, "gate_proj", dim, config.mlp);
    up = AddLinear(*mlp, "up_proj", dim, config.mlp);
    down = AddLinear(*mlp, "down_proj", config.mlp, dim);
    scale2 = AddScale("layer_scale2", config);
  }

  // `factors`: of drop path, [2, N, 1, 1], or undefined.
  at::Tensor forward(const at::Tensor& tokens, const RotaryTable& table, const at::Tensor& factors) {
    const auto scaled = [&](const at::Tensor& scale, std::int64_t branch) {
      return factors.defined() ? scale * factors[branch] : scale;
    };
    const at::Tensor between = at::addcmul(tokens, Attention(LayerNorm(norm1, tokens), table), scaled(scale1, 0));
    return at::addcmul(between, Mlp(LayerNorm(norm2, between)), scaled(scale2, 1));
  }

  at::Tensor AddScale(const char* name, const model_spec::BackboneOptions& config) {
    const auto scale = register_module(name, std::make_shared<torch::nn::Module>("LayerScale"));
    return scale->register_parameter("lambda1", at::full({config.dim}, config.layer_scale));
  }
  at::Tensor LayerNorm(const WeightAndBiasPtr& norm, const at::Tensor& tokens) const {
    return at::layer_norm(tokens, norm->weight.sizes(), norm->weight, norm->bias, eps);
  }
  at::Tensor Attention(const at::Tensor& tokens, const RotaryTable& table) const {
    const auto by_head = [&](const WeightAndBiasPtr& linear) {  // [N, tokens, heads, head dim]
      return Linear(linear, tokens).view({tokens.size(0), tokens.size(1), heads, -1});
    };
    const at::Tensor mixed =
        at::scaled_dot_product_attention(ApplyRotary(by_head(q), table).transpose(1, 2),
                                         ApplyRotary(by_head(k), table).transpose(1, 2), by_head(v).transpose(1, 2));
    return Linear(o, mixed.transpose(1, 2).flatten(2));
  }
  at::Tensor Mlp(const at::Tensor& tokens) const {
    if (gated) return Linear(down, at::silu(Linear(gate_layer, tokens)) * Linear(up, tokens));
    return Linear(down, at::gelu(Linear(up, tokens)));
  }

  const std::int64_t heads;
  const bool gated;
  const double eps;
  WeightAndBiasPtr norm1, q, k, v, o, norm2, gate_layer, up, down;
  at::Tensor scale1, scale2;
  bool frozen = false;
};

void CheckConfig(const model_spec::BackboneOptions& config) {
  const auto refuse = [](const std::string& what) { throw Error("the backbone cannot be made: " + what); };
  if (config.dim < 1 || config.layers < 1 || config.heads < 1 || config.mlp < 1 || config.patch < 1 ||
      config.channels < 1 || config.registers < 0)
    refuse("its dim, layers, heads, mlp, patch and channels must be 1 or more, and its registers 0 or more.");
  if (config.dim % (4 * config.heads) != 0)
    refuse("its dim " + std::to_string(config.dim) + " is not a multiple of 4 × " + std::to_string(config.heads) +
           " heads, as the rotary positions need it.");
  if (!(config.drop_path >= 0 && config.drop_path < 1))
    refuse("its drop_path must be at least 0 and less than 1, and is " + std::to_string(config.drop_path) + ".");
  if (config.rope_rescale != 0 && !(config.rope_rescale >= 1))
    refuse("its rope_rescale must be 0 (none) or at least 1, and is " + std::to_string(config.rope_rescale) + ".");
}

std::string ShapeOf(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

struct BackboneImpl::Impl {
  explicit Impl(const model_spec::BackboneOptions& config)
      : tables(config.dim / config.heads, config.rope_theta, 1 + config.registers) {}

  at::Tensor cls_token, mask_token, register_tokens;
  WeightAndBiasPtr patches;
  std::vector<std::shared_ptr<Layer>> layers;
  WeightAndBiasPtr norm;
  RotaryTables tables;

  struct Embeddings {
    at::Tensor tokens;
    RotaryTable table;
    std::int64_t rows = 0, columns = 0;
  };
  Embeddings Embed(const model_spec::BackboneOptions& shape, const at::Tensor& images, double rescale);
};

BackboneImpl::Impl::Embeddings BackboneImpl::Impl::Embed(const model_spec::BackboneOptions& shape,
                                                         const at::Tensor& images, double rescale) {
  const std::int64_t patch = shape.patch;
  if (images.dim() != 4 || images.size(1) != shape.channels || images.size(2) < patch || images.size(3) < patch)
    throw Error("the backbone takes images as [N, " + std::to_string(shape.channels) +
                ", H, W] with sides of at least " + std::to_string(patch) + " pixels, and was given " +
                ShapeOf(images) + ".");
  Embeddings start;
  const std::int64_t count = images.size(0);
  start.rows = images.size(2) / patch;
  start.columns = images.size(3) / patch;
  // The patch convolution (kernel = stride) as a matrix product: the same result on every device, in a fixed order, and
  // faster.
  const at::Tensor pixels = images.slice(2, 0, start.rows * patch)
                                .slice(3, 0, start.columns * patch)
                                .reshape({count, shape.channels, start.rows, patch, start.columns, patch})
                                .permute({0, 2, 4, 1, 3, 5})
                                .reshape({count, start.rows * start.columns, shape.channels * patch * patch});
  const at::Tensor embedded =
      at::linear(pixels.to(patches->weight.scalar_type()), patches->weight.flatten(1), patches->bias);
  const auto for_all = [&](const at::Tensor& token) { return token.expand({count, -1, -1}); };
  start.tokens = at::cat({for_all(cls_token), for_all(register_tokens), embedded}, 1);
  start.table = tables.Get(start.rows, start.columns, images.device(), rescale);
  return start;
}

at::Tensor Features::Patches() const {
  return tokens.slice(1, tokens.size(1) - rows * columns);
}

at::Tensor Features::Map() const {
  return Patches().transpose(1, 2).reshape({tokens.size(0), tokens.size(2), rows, columns});
}

BackboneImpl::BackboneImpl(const model_spec::BackboneOptions& of_config) : config(of_config) {
  CheckConfig(config);
  impl_ = std::make_shared<Impl>(config);
  const auto embeddings = register_module("embeddings", std::make_shared<torch::nn::Module>("Embeddings"));
  impl_->cls_token = embeddings->register_parameter("cls_token", NormalWeights({1, 1, config.dim}));
  impl_->mask_token = embeddings->register_parameter("mask_token", at::zeros({1, 1, config.dim}), false);
  impl_->register_tokens =
      embeddings->register_parameter("register_tokens", NormalWeights({1, config.registers, config.dim}));
  impl_->patches = embeddings->register_module(
      "patch_embeddings",
      std::make_shared<WeightAndBias>(NormalWeights({config.dim, config.channels, config.patch, config.patch}),
                                      at::zeros({config.dim})));
  const auto layers = register_module("layer", std::make_shared<torch::nn::Module>("Layers"));
  for (std::int64_t i = 0; i < config.layers; ++i)
    impl_->layers.push_back(layers->register_module(std::to_string(i), std::make_shared<Layer>(config)));
  impl_->norm = AddNorm(*this, "norm", config.dim);
}

Features BackboneImpl::forward(const at::Tensor& images, const ForwardRandom* random) {
  const bool varies = is_training() && (config.drop_path > 0 || config.rope_rescale > 1);
  if (varies && random == nullptr)
    throw Error(
        "the backbone trains with drop path or changed coordinates, and was not told the step and the samples that "
        "these are drawn for. Give forward a ForwardRandom, or call eval().");
  const bool drops = varies && config.drop_path > 0;
  if (drops && static_cast<std::int64_t>(random->samples.size()) != images.size(0))
    throw Error("the batch has " + std::to_string(images.size(0)) + " images, and forward was told the numbers of " +
                std::to_string(random->samples.size()) + " samples.");

  const auto start = impl_->Embed(config, images, varies ? RopeFactor(config, *random) : 1);
  at::Tensor factors;
  if (drops) factors = DropPathFactors(config, *random).to(images.device());
  at::Tensor tokens = start.tokens;
  for (std::size_t i = 0; i < impl_->layers.size(); ++i) {
    Layer& layer = *impl_->layers[i];
    const auto first = static_cast<std::int64_t>(2 * i);
    // The first layer never drops anything.
    const bool here = drops && i > 0 && !layer.frozen;
    tokens = layer.forward(tokens, start.table, here ? factors.slice(0, first, first + 2) : at::Tensor());
  }
  Features features;
  features.tokens = at::layer_norm(tokens, {config.dim}, impl_->norm->weight, impl_->norm->bias, config.norm_eps);
  features.pooled = features.tokens.select(1, 0);
  features.rows = start.rows;
  features.columns = start.columns;
  return features;
}

std::vector<at::Tensor> BackboneImpl::HiddenStates(const at::Tensor& images) {
  const auto start = impl_->Embed(config, images, 1);
  std::vector<at::Tensor> states = {start.tokens};
  for (const auto& layer : impl_->layers) states.push_back(layer->forward(states.back(), start.table, at::Tensor()));
  return states;
}

void BackboneImpl::Freeze(std::int64_t layers) {
  if (layers < -1 || layers > config.layers)
    throw Error("the first " + std::to_string(layers) + " layers are to be frozen, and the backbone has " +
                std::to_string(config.layers) + ": say 0 to " + std::to_string(config.layers) +
                ", or -1 for all of it.");
  const bool all = layers == -1;
  const auto set = [](torch::nn::Module& module, bool trainable) {
    for (at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(trainable);
  };
  set(*this, !all);
  impl_->mask_token.set_requires_grad(false);
  if (layers > 0) set(*named_children()["embeddings"], false);
  for (std::size_t i = 0; i < impl_->layers.size(); ++i) {
    Layer& layer = *impl_->layers[i];
    layer.frozen = all || static_cast<std::int64_t>(i) < layers;
    if (layer.frozen) set(layer, false);
  }
}

at::Tensor DropPathFactors(const model_spec::BackboneOptions& config, const ForwardRandom& random) {
  const auto samples = static_cast<std::int64_t>(random.samples.size());
  at::Tensor factors = at::empty({2 * config.layers, samples, 1, 1}, at::kFloat);
  float* const values = factors.mutable_data_ptr<float>();
  for (std::int64_t n = 0; n < samples; ++n) {
    RandomStream stream(random.seed, Purpose::kDropout, random.epoch, random.samples[static_cast<std::size_t>(n)]);
    for (std::int64_t row = 0; row < 2 * config.layers; ++row) {
      const double last = static_cast<double>(std::max<std::int64_t>(config.layers - 1, 1));
      const double dropped = config.drop_path * static_cast<double>(row / 2) / last;
      // Every layer draws, so that disabling one layer does not change the draws of the others.
      values[row * samples + n] = stream.Uniform() < dropped ? 0.0F : static_cast<float>(1 / (1 - dropped));
    }
  }
  return factors;
}

double RopeFactor(const model_spec::BackboneOptions& config, const ForwardRandom& random) {
  if (config.rope_rescale <= 1) return 1;
  RandomStream stream(random.seed, Purpose::kDropout, random.step, kWholeStep);
  const double most = std::log(config.rope_rescale);
  return std::exp(stream.Uniform(-most, most));
}

}  // namespace fulldeck::dinov3
