// A backbone with its heads: the model that the job trains. Segmentation (linear, or the up-head with an auxiliary FCN
// head) or classification. losses.h has the loss, ema.h the EMA weights.
//
// Threads: as torch::nn::Module, one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <fulldeck/checkpoint.h>
#include <fulldeck/data_parallel.h>
#include <fulldeck/team.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dinov3/backbone.h"
#include "model_spec/options.h"

namespace fulldeck::dinov3 {

struct Prediction {
  // Segmentation: [N, classes, rows, columns], one position per patch; classification: [N, classes].
  at::Tensor logits;
  // The same of the auxiliary head, in training; undefined without one.
  at::Tensor auxiliary;

  // Segmentation: bilinear upsampling to the size of the image, in float32. With torch's deterministic algorithms, in a
  // fixed order.
  static at::Tensor Upsample(const at::Tensor& logits, std::int64_t height, std::int64_t width);
};

// Names of parameters and buffers: backbone.… (backbone.h), head.…, auxiliary.….
class VisionModelImpl : public torch::nn::Module {
 public:
  // `team`: for synchronized batch normalization; not used with norm = kGroup. Weights are random, from torch's CPU
  // generator; LoadBackbone replaces the backbone's. Applies the config's freeze. Throws Error for an unknown backbone,
  // and for an auxiliary head without masks to train on.
  VisionModelImpl(const model_spec::ModelOptions& model, model_spec::Task task, std::int64_t classes,
                  std::int64_t channels, const Team& team);
  // For a backbone without a name.
  VisionModelImpl(const model_spec::BackboneOptions& backbone, const model_spec::ModelOptions& model,
                  model_spec::Task task, std::int64_t classes, const Team& team);

  // Images [N, channels, H, W]. `random`: see Backbone.
  Prediction forward(const at::Tensor& images, const ForwardRandom* random = nullptr);
  // Switches to another group of the same ranks, for Session::OnRegroup.
  void UseTeam(const Team& team);
  Backbone& backbone() { return backbone_; }

 private:
  struct Heads;
  Backbone backbone_{nullptr};
  std::shared_ptr<Heads> heads_;
};
TORCH_MODULE(VisionModel);

// The backbone that the config names, with its channels and drop path. Throws an Error with all names if it is unknown.
model_spec::BackboneOptions BackboneConfigFor(const model_spec::ModelOptions& model, std::int64_t channels);

// Loads a backbone from Hugging Face's safetensors (a file, or a folder with model.safetensors), in any floating-point
// type. Names may start with "dinov3_vit.", "model." or "backbone.". Any mismatch that the config does not allow by
// name throws an Error with every key and leaves the backbone unchanged. So does a file without any of its layers,
// whatever the config allows. Not a collective.
WeightReport LoadBackbone(Backbone& backbone, const model_spec::ModelOptions& model);

// Parameters for AdamW: {backbone, heads} × {decayed, not decayed}. Frozen parameters are in no group, and groups
// without parameters are omitted. Norms, biases, layer scales and the tokens that are not patches are not decayed.
struct ParamGroup {
  std::string name;  // "backbone", "backbone without decay", "heads", "heads without decay"
  std::vector<at::Tensor> parameters;
  double lr_factor = 1;
  bool decayed = true;
};
std::vector<ParamGroup> ParamGroups(VisionModelImpl& model, double backbone_lr, bool decay_norm_and_bias);

}  // namespace fulldeck::dinov3

template <>
struct fulldeck::TensorsIn<fulldeck::dinov3::Prediction> {
  template <typename Value, typename Visit>
  static void In(Value& value, Visit&& visit) {
    visit(value.logits);
    if (value.auxiliary.defined()) visit(value.auxiliary);
  }
};
