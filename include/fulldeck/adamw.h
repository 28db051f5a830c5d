// A drop-in for LibTorch's AdamW that updates all parameters of a group at once. LibTorch's own optimizer launches
// about a dozen small kernels per parameter, which on a card costs more than the arithmetic; Python's does not. This is
// not a different algorithm.
//
//   fulldeck::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-4).weight_decay(0.05));
//
// It is a torch::optim::AdamW: it shares that class's options, groups, state, checkpoints and schedulers, works with
// MicroBatches, and each can resume from the other's state. The results agree to rounding (about 1e-6 of a step), not
// bit for bit.
//
// If the device has `aten::_fused_adamw_` (CPU, CUDA, or a vendor's library that provides it), one kernel does the
// whole step. Otherwise each group is updated by a few multi-tensor (foreach) operations. The choice depends only on
// device and types, so it is the same on all ranks.
//
// Threads: call it only from the training loop's thread.
#pragma once

#include <torch/optim/adamw.h>

#include "fulldeck/error.h"

namespace fulldeck {

class FULLDECK_RUNTIME_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;

  // Skips parameters without a gradient, as torch does. Throws Error on sparse gradients.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Whether this device has the fused kernel.
  static bool IsFusedOn(c10::DeviceType device);
};

}  // namespace fulldeck
