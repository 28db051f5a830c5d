// EMA weights: an exponential moving average of a module's weights, used for validation.
#pragma once

#include <fulldeck/checkpoint.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::dinov3 {

// After every step, average = d · average + (1 − d) · weights. d is `decay`, or less in the first steps ((1 + n) / (10
// + n) after n updates), so that the random initial weights do not dominate. Frozen parameters and buffers are copied.
//
// The averages start as the module's weights: construct it when the module has its weights and its device. The module
// must outlive it. Threads: the loop's.
class Ema {
 public:
  // decay: 0 < decay < 1, otherwise throws Error.
  Ema(torch::nn::Module& module, double decay);
  // Call it after the optimizer's step. Throws Error while swapped.
  void Update();
  // Exchanges the module's weights with the averages; a second call exchanges them back. The module's tensors stay the
  // same objects.
  void Swap();
  bool swapped() const { return swapped_; }

  // For State::Tensors: every average by its name in the module, and the number of updates. Save returns the averages
  // whether swapped or not. Load requires each of them in the same shape and throws an Error that names the missing
  // ones.
  State::NamedTensors Save() const;
  void Load(const State::NamedTensors& tensors);

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_;  // of the module: trainable parameters first, then everything else
  std::vector<at::Tensor> average_;
  std::size_t num_trainable_ = 0;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
};

}  // namespace fulldeck::dinov3
