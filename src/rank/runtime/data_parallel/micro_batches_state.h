// Parameters and optimizer state as something that can be copied, put back, and sent from one rank to all: what an
// optimizer that ran out of memory half-way may have spoilt.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "fulldeck/team.h"

namespace fulldeck::runtime {

// Throws a Refusal that names the optimizers that are known.
void CheckOptimizerIsKnown(const torch::optim::Optimizer& optimizer);

// On the host.
class OptimizerSnapshot {
 public:
  explicit OptimizerSnapshot(torch::optim::Optimizer& optimizer);
  void Restore(torch::optim::Optimizer& optimizer) const;

 private:
  struct Entry {
    at::Tensor parameter;
    std::unique_ptr<torch::optim::OptimizerParamState> state;  // null: there was none yet
  };
  std::vector<Entry> entries_;
};

// All ranks call it: everybody has the root's parameters and optimizer state afterwards.
void BroadcastOptimizer(const Team& team, torch::optim::Optimizer& optimizer, int root);

}  // namespace fulldeck::runtime
