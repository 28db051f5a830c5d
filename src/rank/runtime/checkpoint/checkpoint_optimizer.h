// Converts torch's optimizers to names, tensors and numbers. The kinds are listed in optimizer_kinds.h.
#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <string>

#include "runtime/checkpoint/checkpoint_state.h"

namespace torch::optim {
class LRScheduler;
}  // namespace torch::optim

namespace fulldeck::runtime {

// "AdamW"; throws an Error for an unknown kind.
std::string KindOf(torch::optim::Optimizer& optimizer);

using ParameterNames = std::map<const void*, std::string>;  // by TensorImpl

// Tensors "PARAMETER.exp_avg" in the file `name`, numbers "name/parameter/PARAMETER/step" and "name/group/0/lr".
void SaveOptimizer(const std::string& name, torch::optim::Optimizer& optimizer, const ParameterNames& names,
                   StateSnapshot& snapshot);
void CheckOptimizer(const std::string& name, torch::optim::Optimizer& optimizer, const ParameterNames& names,
                    Loading& loading);
void LoadOptimizer(const std::string& name, torch::optim::Optimizer& optimizer, const ParameterNames& names,
                   Loading& loading);

// Bytes that the optimizer will allocate for parameters that it has not stepped yet.
std::uint64_t BytesToCome(torch::optim::Optimizer& optimizer);

// The step count of a scheduler, which is its only own state.
unsigned& StepsOf(torch::optim::LRScheduler& scheduler);

}  // namespace fulldeck::runtime
