// torch's AdamW, with all parameters of a group in one go. LibTorch's own walks through the parameters one by one with
// a dozen small kernels each, which on a card costs more than the arithmetic; Python's does not.
//
//   fulldeck::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-4).weight_decay(0.05));
//
// It is a torch::optim::AdamW: options, groups, state, checkpoints, schedulers and MicroBatches are that one's, and one
// can go on where the other stopped. The results agree to rounding (about 1e-6 of a step), not bit by bit.
//
// One kernel does the whole step where the device has it (`aten::_fused_adamw_`: CPU, CUDA, whatever a vendor's library
// brings); else lists of tensors go through a few operations each. Which of them it is depends on device and types
// alone, so it is the same on all ranks.
//
// Threads: the training loop's alone.
#pragma once

#include <torch/optim/adamw.h>

#include "fulldeck/error.h"

namespace fulldeck {

class FULLDECK_RUNTIME_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;

  // Parameters without a gradient are passed over, as torch does. Sparse gradients are an Error.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Does this device have the one kernel for the whole step?
  static bool IsFusedOn(c10::DeviceType device);
};

}  // namespace fulldeck
