// torch's optimizers as names, tensors and numbers. The one file that knows their kinds.
#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <string>

#include "runtime/checkpoint/checkpoint_state.h"

namespace torch::optim {
class LRScheduler;
}  // namespace torch::optim

namespace fulldeck::runtime {

// "AdamW"; throws an Error for a kind that is not known.
std::string KindOf(torch::optim::Optimizer& optimizer);

using ParameterNames = std::map<const void*, std::string>;  // by their TensorImpl

// Tensors "PARAMETER.exp_avg" in the part `name`, numbers "name/parameter/PARAMETER/step" and "name/group/0/lr".
void SaveOptimizer(const std::string& name, torch::optim::Optimizer& optimizer, const ParameterNames& names,
                   StateSnapshot& snapshot);
void CheckOptimizer(const std::string& name, torch::optim::Optimizer& optimizer, const ParameterNames& names,
                    Loading& loading);
void LoadOptimizer(const std::string& name, torch::optim::Optimizer& optimizer, const ParameterNames& names,
                   Loading& loading);

// Bytes that it will keep of parameters which it has not stepped yet.
std::uint64_t BytesToCome(torch::optim::Optimizer& optimizer);

// How often a scheduler has stepped, which is all that it keeps itself.
unsigned& StepsOf(torch::optim::LRScheduler& scheduler);

}  // namespace fulldeck::runtime
