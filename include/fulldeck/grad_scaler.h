// Training with 16-bit types: autocast, and the scaling of losses that keeps small gradients from vanishing.
//
//   fulldeck::GradScaler scaler;
//   for (...) {
//     at::Tensor loss;
//     {
//       const fulldeck::Autocast cast(session->device().type(), at::kHalf);
//       loss = Loss(model.Forward(images), labels);
//     }
//     scaler.Scale(loss).backward();
//     scaler.Unscale(model);                      // only needed before clipping; Step does it otherwise
//     fulldeck::ClipGradNorm(model, 1.0);
//     scaler.Step(model, optimizer);              // leaves the step out, on all ranks, after an overflow on any
//   }
//
// bfloat16 has float's range and needs no scaler. Threads: the training loop's alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "fulldeck/data_parallel.h"
#include "fulldeck/error.h"

namespace fulldeck {

// While it lives, operations of this thread on such devices compute in `dtype` where torch holds that to be safe. May
// be nested. For a card under PrivateUse1 its vendor's library says which operations those are.
class FULLDECK_RUNTIME_API Autocast {
 public:
  explicit Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType old_dtype_;
};

// All that there is to save of a scaler.
struct GradScalerState {
  double scale = 65536.0;
  double growth_factor = 2.0;   // after growth_interval steps without an overflow
  double backoff_factor = 0.5;  // after one with
  std::int64_t growth_interval = 2000;
  std::int64_t steps_since_overflow = 0;
  bool enabled = true;  // false: scale is 1 and no step is left out
};

class FULLDECK_RUNTIME_API GradScaler {
 public:
  // Throws an Error on factors that cannot be.
  explicit GradScaler(const GradScalerState& state = {});

  at::Tensor Scale(const at::Tensor& loss) const;
  // Divides the reduced gradients by the scale, once a step, and learns whether they are finite. The reduction carries
  // what is not finite from one rank to all, so every rank comes to the same answer without asking. Refuses gradients
  // that were not reduced.
  void Unscale(DataParallelCore& model);
  // Unscale unless done; then the optimizer's step, or none after an overflow; then the scale for the next. True: the
  // step was taken. The first step that is left out is reported on stderr by rank 0, with the scale and, where
  // check_finite is on, the rank and the parameter; skipped() counts them all. After 50 steps in a row without one it
  // throws the Error of DataParallelCore::CheckFinite: no scale helps against a real NaN.
  bool Step(DataParallelCore& model, torch::optim::Optimizer& optimizer);

  double scale() const { return state_.enabled ? state_.scale : 1.0; }
  std::uint64_t skipped() const { return skipped_; }  // steps
  const GradScalerState& state() const { return state_; }
  void Load(const GradScalerState& state);
  // For State::Object (fulldeck/checkpoint.h): the state and skipped(), exactly. FromText throws an Error on anything
  // that ToText does not write, and then changes nothing.
  std::string ToText() const;
  void FromText(const std::string& text);

 private:
  GradScalerState state_;
  bool unscaled_ = false;
  bool overflowed_ = false;
  std::uint64_t skipped_ = 0;
  std::uint64_t skipped_in_a_row_ = 0;
};

}  // namespace fulldeck
