// DINOv3's vision transformer: patches, a class token and registers, pre-norm blocks, rotary positions. No heads: see
// vision_model.h. Parameters are named as in Hugging Face's files, so weights load by name.
//
// In evaluation the output depends only on the images. In training, drop path and the rescaling of RoPE's coordinates
// draw from counters of (seed, epoch, sample), so they do not depend on how the batch is distributed over ranks.
//
// Threads: as torch::nn::Module, one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "model_spec/backbones.h"

namespace fulldeck::dinov3 {

// The random inputs of one forward pass.
struct ForwardRandom {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;              // the same on all ranks
  std::vector<std::uint64_t> samples;  // one per row of the batch
};

struct Features {
  at::Tensor tokens;  // [N, 1 + registers + rows·columns, dim], after the last norm
  at::Tensor pooled;  // [N, dim]: the class token
  std::int64_t rows = 0, columns = 0;

  at::Tensor Patches() const;  // [N, rows·columns, dim]
  at::Tensor Map() const;      // [N, dim, rows, columns], of the patches
};

class BackboneImpl : public torch::nn::Module {
 public:
  // Weights are random as in the published models (normal, 0.02; biases 0), from torch's CPU generator. Throws Error
  // for an invalid config.
  explicit BackboneImpl(const model_spec::BackboneOptions& config);

  // Images [N, channels, H, W]; if a side is not a multiple of the patch, the remainder is dropped, as in a
  // convolution. In training, `random` is required if the config has any randomness; without it, throws Error.
  Features forward(const at::Tensor& images, const ForwardRandom* random = nullptr);
  // The embeddings, then the output of each layer before the last norm: 1 + layers tensors [N, tokens, dim]. Nothing
  // random.
  std::vector<at::Tensor> HiddenStates(const at::Tensor& images);
  // Freezes the embeddings and the first `layers` layers, and disables drop path in them; 0: everything is trainable;
  // −1: everything is frozen, including the last norm. Call it before DataParallel wraps the module.
  //
  // mask_token, which only pre-training uses, is always frozen.
  void Freeze(std::int64_t layers);

  const model_spec::BackboneOptions config;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};
TORCH_MODULE(Backbone);

// The factor of each branch of each sample: [2·layers, N, 1, 1], float32, on the CPU. Row 2·l is layer l's attention,
// row 2·l + 1 its MLP: 0 if the branch is dropped, otherwise 1 / (1 − p), where p grows linearly from 0 in the first
// layer to config.drop_path in the last.
at::Tensor DropPathFactors(const model_spec::BackboneOptions& config, const ForwardRandom& random);
// The factor of RoPE's coordinates in a step: between 1/x and x, uniform in its logarithm.
double RopeFactor(const model_spec::BackboneOptions& config, const ForwardRandom& random);

}  // namespace fulldeck::dinov3
