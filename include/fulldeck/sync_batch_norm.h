// Batch normalisation over the batches of all ranks together: forward and backward are what one rank with the whole
// batch would compute, however unevenly the batch is spread; a rank's part may even be empty. Made of ordinary tensor
// operations and the team's group, so it works on every device.
//
// LibTorch has no way to exchange the layers of a module that was built: a module calls its layers through members of
// its own, whatever is registered. So a module is written with this layer in place of torch::nn::BatchNorm1d/2d/3d; for
// a Sequential, whose layers can be had, there is SyncedBatchNorm(sequential, team). UnsyncedBatchNorms names layers
// that normalise over one rank's batch alone.
//
// All ranks go through the layer in the same order, in forward and in backward. In evaluation nothing is communicated.
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
  std::optional<double> momentum = 0.1;  // of the running statistics; nothing: the plain mean of all batches
  bool affine = true;
  bool track_running_stats = true;
};

// Those that the options ask for.
struct SyncBatchNormTensors {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;
};

class FULLDECK_RUNTIME_API SyncBatchNormImpl : public torch::nn::Module {
 public:
  SyncBatchNormImpl(Team team, const SyncBatchNormOptions& options);
  // With these in place of new ones.
  SyncBatchNormImpl(Team team, const SyncBatchNormOptions& options, const SyncBatchNormTensors& tensors);

  // [batch, features, …]. Throws an Error when all ranks together have fewer than two values a feature.
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  // Named and shaped as torch's own, so that weights go from one to the other. Not defined where the options say so.
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;

  const SyncBatchNormOptions options;

 private:
  const Team team_;
};
TORCH_MODULE(SyncBatchNorm);

// A Sequential with the same layers, but for each BatchNorm1d, 2d and 3d in it a SyncBatchNorm with its options and the
// same parameters and buffers (not copies). LibTorch's Sequentials do not nest.
FULLDECK_RUNTIME_API torch::nn::Sequential SyncedBatchNorm(const torch::nn::Sequential& sequential, const Team& team);

// The names of all layers in the module that are plain BatchNorms; empty: none.
FULLDECK_RUNTIME_API std::vector<std::string> UnsyncedBatchNorms(const torch::nn::Module& module);

}  // namespace fulldeck
