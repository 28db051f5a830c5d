// Averaged weights: a copy of a module that follows it slowly, and is better than the module while that still jumps.
#pragma once

#include <fulldeck/checkpoint.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::dinov3 {

// After every step, average = d · average + (1 − d) · weights, where d is `decay`, and less in the first steps
// ((1 + n) / (10 + n) of n updates), which know the random start too well. What does not learn and buffers are copied.
//
// The averages start as the module is: construct it when the module has its weights and its device. The module outlives
// it. Threads: the loop's.
class Ema {
 public:
  // decay: 0 < decay < 1; else an Error.
  Ema(torch::nn::Module& module, double decay);
  // After the optimizer's step. An Error while swapped.
  void Update();
  // Exchanges the module's weights with the averaged ones; a second call exchanges them back. The module's tensors stay
  // the same objects.
  void Swap();
  bool swapped() const { return swapped_; }

  // For State::Tensors: every average by the name that the weights have in the module, and how many updates there were.
  // What is saved are the averages, swapped or not. Loading needs each of them in the same shape; an Error names those
  // that are not there.
  State::NamedTensors Save() const;
  void Load(const State::NamedTensors& tensors);

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_;  // the module's: parameters that learn first, then everything else
  std::vector<at::Tensor> average_;
  std::size_t num_trainable_ = 0;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
};

}  // namespace fulldeck::dinov3
