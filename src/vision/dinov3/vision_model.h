// A backbone with its heads: what the job trains. Segmentation (linear, or the up-head with an auxiliary FCN head) or
// classification. losses.h has what it learns from, ema.h its averaged weights.
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

#include "config/config.h"
#include "dinov3/backbone.h"

namespace fulldeck::dinov3 {

struct Prediction {
  // Segmentation: [N, classes, rows, columns], one a patch; classification: [N, classes].
  at::Tensor logits;
  // The same of the auxiliary head, while training; not defined where there is none.
  at::Tensor auxiliary;

  // Segmentation: bilinear to the size of the image, in float32. With torch's deterministic algorithms in an order that
  // is always the same.
  static at::Tensor Upsample(const at::Tensor& logits, std::int64_t height, std::int64_t width);
};

// Names of parameters and buffers: backbone.… (backbone.h), head.…, auxiliary.….
class VisionModelImpl : public torch::nn::Module {
 public:
  // `team`: for synchronised batch normalisation; with norm = kGroup it is not used. Weights are random, from torch's
  // generator of the host; LoadBackbone comes after. Freezes what the config says. An Error for a backbone that no
  // config knows, and for an auxiliary head without masks to learn from.
  VisionModelImpl(const config::Model& model, config::Task task, std::int64_t classes, std::int64_t channels,
                  const Team& team);
  // With a backbone that has no name.
  VisionModelImpl(const config::BackboneConfig& backbone, const config::Model& model, config::Task task,
                  std::int64_t classes, const Team& team);

  // Images [N, channels, H, W]. `random`: see Backbone.
  Prediction forward(const at::Tensor& images, const ForwardRandom* random = nullptr);
  // Goes on with another group of the same ranks, for Session::OnRegroup.
  void UseTeam(const Team& team);
  Backbone& backbone() { return backbone_; }

 private:
  struct Heads;
  Backbone backbone_{nullptr};
  std::shared_ptr<Heads> heads_;
};
TORCH_MODULE(VisionModel);

// The backbone that the config names, with its channels and drop path. An Error with all names for one that is not
// known.
config::BackboneConfig BackboneConfigFor(const config::Model& model, std::int64_t channels);

// Loads a backbone from Hugging Face's safetensors (a file, or a folder that has model.safetensors), in any type of
// floating point. Names may begin with "dinov3_vit.", "model." or "backbone.". Anything but a full match that the
// config does not allow by name throws an Error with every key, and the backbone is as it was. So does a file that has
// not one of its layers, whatever the config allows. Not a collective.
WeightReport LoadBackbone(Backbone& backbone, const config::Model& model);

// Parameters for AdamW: {backbone, heads} × {decayed, not decayed}; frozen ones are in none, and groups without
// parameters are left out. Without decay are norms, biases, layer scales and the tokens that are not patches.
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
