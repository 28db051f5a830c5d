// What happens once, when a module is wrapped: it is checked on every rank, and synchronized from rank 0.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "fulldeck/replica_check.h"
#include "fulldeck/team.h"

namespace fulldeck::runtime {

struct Trained {
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;  // that require a gradient, each once
  std::vector<bool> sparse;            // whether its gradient is sparse
};
Trained TrainedParameters(const torch::nn::Module& module);
// All parameters, then all buffers, by name.
std::vector<NamedTensor> ContentsOf(const torch::nn::Module& module);
std::vector<at::Tensor> BuffersOf(const torch::nn::Module& module);

// Collectives; each throws the same kind of Refusal on every rank, with a message for that rank. Checks the device,
// then names, shapes and types, and `settings`, lines that must be equal too.
void AgreeOnModule(const torch::nn::Module& module, const Team& team, const std::vector<std::string>& settings);
void CopyFromFirstRank(const torch::nn::Module& module, const Team& team);
void CompareContents(const torch::nn::Module& module, const Team& team);

// From rank 0 to all, invisible to autograd: tensors that a graph has saved remain valid.
void BroadcastQuietly(const std::vector<at::Tensor>& tensors, const Team& team);

// Why this module may not be wrapped here (one sentence); empty: it may.
std::string MisplacedReason(const torch::nn::Module& module, const Team& team);
// "cuda:0", or the name of the PrivateUse1 device.
std::string DeviceName(const c10::Device& device);
std::string ShapeText(c10::IntArrayRef sizes);  // "[384, 3, 16, 16]"

}  // namespace fulldeck::runtime
