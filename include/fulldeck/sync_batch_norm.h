// Batch normalization over the batches of all ranks together: forward and backward compute what one rank with the whole
// batch would, however unevenly the batch is distributed; a rank's share may even be empty. It uses ordinary tensor
// operations and the team's group, so it works on every device.
//
// LibTorch cannot replace the layers of an existing module: a module calls its layers through its own members, whatever
// is registered. So write the module with this layer in place of torch::nn::BatchNorm1d/2d/3d. For a Sequential, whose
// layers are accessible, use SyncedBatchNorm(sequential, team). UnsyncedBatchNorms lists layers that normalize over one
// rank's batch only.
//
// All ranks call the layer in the same order, in forward and in backward. In evaluation mode nothing is communicated.
// Threads: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace fulldeck {

struct SyncBatchNormOptions {
  explicit SyncBatchNormOptions(std::int64_t of_features) : features(of_features) {}
  std::int64_t features;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // of the running statistics; nullopt: the cumulative mean of all batches
  bool affine = true;
  bool track_running_stats = true;
};

// The tensors that the options enable.
struct SyncBatchNormTensors {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;
};

class FULLDECK_RUNTIME_API SyncBatchNormImpl : public torch::nn::Module {
 public:
  SyncBatchNormImpl(Team team, const SyncBatchNormOptions& options);
  // Uses these tensors instead of new ones.
  SyncBatchNormImpl(Team team, const SyncBatchNormOptions& options, const SyncBatchNormTensors& tensors);

  // [batch, features, …]. Throws an Error when all ranks together have fewer than two values per feature.
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  // Names and shapes are torch's own, so that weights are interchangeable. Undefined if the options disable them.
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;

  const SyncBatchNormOptions options;

 private:
  const Team team_;
};
TORCH_MODULE(SyncBatchNorm);

// A Sequential with the same layers, except that each BatchNorm1d, 2d and 3d is replaced by a SyncBatchNorm with its
// options and the same parameters and buffers (not copies). LibTorch's Sequentials do not nest.
FULLDECK_RUNTIME_API torch::nn::Sequential SyncedBatchNorm(const torch::nn::Sequential& sequential, const Team& team);

// The names of all plain BatchNorm layers in the module; empty if it has none.
FULLDECK_RUNTIME_API std::vector<std::string> UnsyncedBatchNorms(const torch::nn::Module& module);

}  // namespace fulldeck
