#include "dinov3/vision_model.h"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "dinov3/initial_weights.h"
#include "fulldeck/sync_batch_norm.h"

namespace fulldeck::dinov3 {
namespace {

// A convolution that keeps the size, with norm and ReLU if `normed`.
struct Convolution : torch::nn::Module {
  Convolution(std::int64_t in, std::int64_t out, std::int64_t side) {
    weight = register_parameter("weight",
                                side == 1 ? NormalWeights({out, in, 1, 1}) : BeforeReluWeights({out, in, side, side}));
    padding = side / 2;
  }
  void AddBias() { bias = register_parameter("bias", at::zeros({weight.size(0)})); }
  at::Tensor forward(const at::Tensor& input) const { return at::conv2d(input, weight, bias, 1, padding); }

  at::Tensor weight, bias;
  std::int64_t padding = 0;
};

struct GroupNorm : torch::nn::Module {
  explicit GroupNorm(std::int64_t channels) : groups(std::gcd(channels, std::int64_t{32})) {
    weight = register_parameter("weight", at::ones({channels}));
    bias = register_parameter("bias", at::zeros({channels}));
  }
  at::Tensor forward(const at::Tensor& input) const { return at::group_norm(input, groups, weight, bias); }

  const std::int64_t groups;
  at::Tensor weight, bias;
};

// 3×3, norm, ReLU.
struct Block : torch::nn::Module {
  Block(std::int64_t in, std::int64_t out, model_spec::Norm norm, const Team& team) {
    conv = register_module("conv", std::make_shared<Convolution>(in, out, 3));
    if (norm == model_spec::Norm::kGroup) {
      group_norm = register_module("norm", std::make_shared<GroupNorm>(out));
    } else {
      batch_norm = register_module("norm", SyncBatchNorm(team, SyncBatchNormOptions(out)));
      single_rank = team.world_size == 1;
    }
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor filtered = conv->forward(input);
    return at::relu(group_norm ? group_norm->forward(filtered) : BatchNorm(filtered));
  }
  at::Tensor BatchNorm(const at::Tensor& input) {
    SyncBatchNormImpl& norm = *batch_norm;
    if (!single_rank || !is_training()) return norm.forward(input);
    // A single rank needs no communication, and its device has a fused kernel.
    const at::Tensor normed = at::batch_norm(input, norm.weight, norm.bias, norm.running_mean, norm.running_var, true,
                                             *norm.options.momentum, norm.options.eps, true);
    norm.num_batches_tracked.add_(1);
    return normed;
  }
  void UseTeam(const Team& team) {
    if (group_norm) return;
    const SyncBatchNormTensors tensors = {batch_norm->weight, batch_norm->bias, batch_norm->running_mean,
                                          batch_norm->running_var, batch_norm->num_batches_tracked};
    const bool training = batch_norm->is_training();
    batch_norm = replace_module("norm", SyncBatchNorm(team, batch_norm->options, tensors));
    batch_norm->train(training);
    single_rank = team.world_size == 1;
  }

  std::shared_ptr<Convolution> conv;
  std::shared_ptr<GroupNorm> group_norm;
  SyncBatchNorm batch_norm{nullptr};
  bool single_rank = false;
};

// The parts that the config enables, in this order: 1×1 to fewer channels, blocks, classifier.
struct SegmentationHead : torch::nn::Module {
  at::Tensor forward(const at::Tensor& map) {
    at::Tensor features = project ? project->forward(map) : map;
    for (const auto& block : blocks) features = block->forward(features);
    return classifier->forward(features);
  }
  void AddBlock(std::int64_t in, std::int64_t out, model_spec::Norm norm, const Team& team) {
    blocks.push_back(
        register_module("block" + std::to_string(blocks.size() + 1), std::make_shared<Block>(in, out, norm, team)));
  }
  void AddClassifier(std::int64_t in, std::int64_t classes) {
    classifier = register_module("classifier", std::make_shared<Convolution>(in, classes, 1));
    classifier->AddBias();
  }

  std::shared_ptr<Convolution> project;
  std::vector<std::shared_ptr<Block>> blocks;
  std::shared_ptr<Convolution> classifier;
};

struct ClassificationHead : torch::nn::Module {
  ClassificationHead(std::int64_t in, std::int64_t classes) {
    const auto classifier = register_module("classifier", std::make_shared<torch::nn::Module>("Classifier"));
    weight = classifier->register_parameter("weight", NormalWeights({classes, in}));
    bias = classifier->register_parameter("bias", at::zeros({classes}));
  }
  at::Tensor forward(const Features& features) const {
    return at::linear(at::cat({features.pooled, features.Patches().mean(1)}, 1), weight, bias);
  }

  at::Tensor weight, bias;
};

// The matrix of bilinear interpolation (align_corners = false) along one axis: [size, from]; each row has the weights
// of the sources.
at::Tensor InterpolationMatrix(std::int64_t from, std::int64_t size, const at::TensorOptions& options) {
  const at::Tensor centers = at::arange(size, options)
                                 .add_(0.5)
                                 .mul_(static_cast<double>(from) / static_cast<double>(size))
                                 .sub_(0.5)
                                 .clamp_(0, static_cast<double>(from - 1));
  return (1 - (centers.unsqueeze(1) - at::arange(from, options)).abs()).clamp_min_(0);
}

}  // namespace

at::Tensor Prediction::Upsample(const at::Tensor& logits, std::int64_t height, std::int64_t width) {
  const at::Tensor wide = logits.to(at::kFloat);
  if (wide.size(2) == height && wide.size(3) == width) return wide;
  // On cards the built-in operator accumulates gradients in any order. Matrix products do not.
  if (at::globalContext().deterministicAlgorithms()) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor rows = InterpolationMatrix(wide.size(2), height, wide.options());
    const at::Tensor columns = InterpolationMatrix(wide.size(3), width, wide.options());
    return at::matmul(at::matmul(rows, wide), columns.t());
  }
  return at::upsample_bilinear2d(wide, {height, width}, /*align_corners=*/false);
}

struct VisionModelImpl::Heads {
  std::shared_ptr<ClassificationHead> image;
  std::shared_ptr<SegmentationHead> map;
  std::shared_ptr<SegmentationHead> auxiliary;
};

VisionModelImpl::VisionModelImpl(const model_spec::ModelOptions& model, model_spec::Task task, std::int64_t classes,
                                 std::int64_t channels, const Team& team)
    : VisionModelImpl(BackboneConfigFor(model, channels), model, task, classes, team) {}

VisionModelImpl::VisionModelImpl(const model_spec::BackboneOptions& backbone, const model_spec::ModelOptions& model,
                                 model_spec::Task task, std::int64_t classes, const Team& team)
    : heads_(std::make_shared<Heads>()) {
  const bool with_auxiliary = model.auxiliary_weight > 0;
  if (classes < 2) throw Error("the model has " + std::to_string(classes) + " classes; there must be 2 at least.");
  if (task == model_spec::Task::kClassification && with_auxiliary)
    throw Error(
        "model.auxiliary_weight is not 0, and the task is classification: the auxiliary head learns from masks. Set it "
        "to 0.");
  backbone_ = register_module("backbone", Backbone(backbone));
  const std::int64_t dim = backbone.dim;
  if (task == model_spec::Task::kClassification) {
    heads_->image = register_module("head", std::make_shared<ClassificationHead>(2 * dim, classes));
  } else {
    heads_->map = register_module("head", std::make_shared<SegmentationHead>());
    SegmentationHead& head = *heads_->map;
    if (model.head == model_spec::Head::kUp) {
      const std::int64_t width = model.head_channels;
      head.project = head.register_module("project", std::make_shared<Convolution>(dim, width, 1));
      head.project->AddBias();
      head.AddBlock(width, width, model.norm, team);
      head.AddBlock(width, width, model.norm, team);
      head.AddClassifier(width, classes);
    } else {
      head.AddClassifier(dim, classes);
    }
    if (with_auxiliary) {
      const std::int64_t width = model_spec::AuxiliaryWidth(dim);
      heads_->auxiliary = register_module("auxiliary", std::make_shared<SegmentationHead>());
      heads_->auxiliary->AddBlock(dim, width, model.norm, team);
      heads_->auxiliary->AddClassifier(width, classes);
    }
  }
  backbone_->Freeze(model.freeze);
}

Prediction VisionModelImpl::forward(const at::Tensor& images, const ForwardRandom* random) {
  const Features features = backbone_->forward(images, random);
  Prediction prediction;
  if (heads_->image) {
    prediction.logits = heads_->image->forward(features);
    return prediction;
  }
  const at::Tensor map = features.Map();
  prediction.logits = heads_->map->forward(map);
  if (heads_->auxiliary && is_training()) prediction.auxiliary = heads_->auxiliary->forward(map);
  return prediction;
}

void VisionModelImpl::UseTeam(const Team& team) {
  for (const auto& head : {heads_->map, heads_->auxiliary}) {
    if (!head) continue;
    for (const auto& block : head->blocks) block->UseTeam(team);
  }
}

}  // namespace fulldeck::dinov3
