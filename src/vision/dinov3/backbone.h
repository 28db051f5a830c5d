// DINOv3's vision transformer: patches, a class token and registers through pre-norm blocks with rotary positions.
// Parameters are named as in Hugging Face's files, so weights load by name.
//
// In evaluation the output depends on the images alone. While training, drop path (and the change of RoPE's
// coordinates) draw from counters of (seed, epoch, sample), so they do not depend on how the batch is spread over
// ranks.
//
// Threads: as torch::nn::Module, one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "config/backbones.h"

namespace fulldeck::dinov3 {

// What is random in one forward pass.
struct ForwardRandom {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;              // the same on all ranks
  std::vector<std::uint64_t> samples;  // one a row of the batch
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
  // Weights are random as the published models' were (normal, 0.02; biases 0), from torch's generator. An Error for a
  // config that cannot be.
  explicit BackboneImpl(const config::BackboneConfig& config);

  // Images [N, channels, H, W]; sides that are not a multiple of the patch lose the rest, as a convolution does.
  // `random` is needed while training where the config has something random; an Error without.
  Features forward(const at::Tensor& images, const ForwardRandom* random = nullptr);
  // The embeddings, then what comes out of each layer, not normalised: 1 + layers tensors [N, tokens, dim]. Without
  // anything random.
  std::vector<at::Tensor> HiddenStates(const at::Tensor& images);
  // Embeddings and the first `layers` layers stop learning, and nothing is dropped in them any more; 0: everything
  // learns; −1: nothing, the last norm included. Before DataParallel wraps the module.
  //
  // mask_token, which only pre-training uses, never learns.
  void Freeze(std::int64_t layers);

  const config::BackboneConfig config;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};
TORCH_MODULE(Backbone);

// What each branch of each sample is multiplied with: [2·layers, N, 1, 1], float32, on the host. Row 2·l is layer l's
// attention, row 2·l + 1 its MLP: 0 where it is left out, else 1 / (1 − p), where p grows evenly from 0 in the first
// layer to config.drop_path in the last.
at::Tensor DropPathFactors(const config::BackboneConfig& config, const ForwardRandom& random);
// What RoPE's coordinates are multiplied with in a step: between 1/x and x, evenly in its logarithm.
double RopeFactor(const config::BackboneConfig& config, const ForwardRandom& random);

}  // namespace fulldeck::dinov3
