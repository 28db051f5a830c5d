// What happens once, when a module is wrapped: it is looked at on every rank, and made the same on all.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "fulldeck/replica_check.h"
#include "fulldeck/team.h"

namespace fulldeck::runtime {

struct Trained {
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;  // that need a gradient, each once
  std::vector<bool> sparse;            // does its gradient come sparse?
};
Trained TrainedParameters(const torch::nn::Module& module);
// All parameters, then all buffers, by name.
std::vector<NamedTensor> ContentsOf(const torch::nn::Module& module);
std::vector<at::Tensor> BuffersOf(const torch::nn::Module& module);

// Collectives; each throws the same kind of Refusal on every rank, in words that fit the rank.
// Device; names, shapes and types; and `settings`, lines that must be the same too.
void AgreeOnModule(const torch::nn::Module& module, const Team& team, const std::vector<std::string>& settings);
void CopyFromFirstRank(const torch::nn::Module& module, const Team& team);
void CompareContents(const torch::nn::Module& module, const Team& team);

// From rank 0 to all, without a trace in autograd: what a graph has saved of them stays valid to it.
void BroadcastQuietly(const std::vector<at::Tensor>& tensors, const Team& team);

// Why this module may not be wrapped here (one sentence); empty: it may.
std::string MisplacedReason(const torch::nn::Module& module, const Team& team);
// "cuda:0", or what PrivateUse1 is called here.
std::string DeviceName(const c10::Device& device);
std::string ShapeText(c10::IntArrayRef sizes);  // "[384, 3, 16, 16]"

}  // namespace fulldeck::runtime
