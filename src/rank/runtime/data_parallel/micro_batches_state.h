// Copies, restores and broadcasts parameters and optimizer state: what an optimizer that ran out of memory half-way may
// have left inconsistent.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "fulldeck/team.h"

namespace fulldeck::runtime {

// Throws a Refusal that lists the supported optimizers.
void CheckOptimizerIsKnown(const torch::optim::Optimizer& optimizer);

// In host memory.
class OptimizerSnapshot {
 public:
  explicit OptimizerSnapshot(torch::optim::Optimizer& optimizer);
  void Restore(torch::optim::Optimizer& optimizer) const;

 private:
  struct Entry {
    at::Tensor parameter;
    std::unique_ptr<torch::optim::OptimizerParamState> state;  // null: the parameter had no state yet
  };
  std::vector<Entry> entries_;
};

// All ranks call it. Afterwards every rank has the root's parameters and optimizer state.
void BroadcastOptimizer(const Team& team, torch::optim::Optimizer& optimizer, int root);

}  // namespace fulldeck::runtime
