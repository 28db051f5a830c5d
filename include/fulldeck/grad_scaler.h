// Training with 16-bit types: autocast, and loss scaling, which keeps small gradients from underflowing.
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
//     scaler.Step(model, optimizer);              // skips the step on all ranks after an overflow on any
//   }
//
// bfloat16 has the range of float and needs no scaler. Threads: call it only from the training loop's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "fulldeck/data_parallel.h"
#include "fulldeck/error.h"

namespace fulldeck {

// While it lives, operations of this thread on this device type compute in `dtype` where torch considers that safe. May
// be nested. For a card under PrivateUse1 the vendor's library decides which operations those are.
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

// The complete state of a scaler, for saving.
struct GradScalerState {
  double scale = 65536.0;
  double growth_factor = 2.0;   // after growth_interval steps without an overflow
  double backoff_factor = 0.5;  // after a step with an overflow
  std::int64_t growth_interval = 2000;
  std::int64_t steps_since_overflow = 0;
  bool enabled = true;  // false: the scale is 1 and no step is skipped
};

class FULLDECK_RUNTIME_API GradScaler {
 public:
  // Throws an Error on invalid factors.
  explicit GradScaler(const GradScalerState& state = {});

  at::Tensor Scale(const at::Tensor& loss) const;
  // Divides the reduced gradients by the scale, once per step, and checks whether they are finite. The reduction
  // spreads non-finite values to all ranks, so every rank reaches the same result without communication. Refuses
  // gradients that were not reduced.
  void Unscale(DataParallelCore& model);
  // Calls Unscale if that was not done; then takes the optimizer's step, or skips it after an overflow; then updates
  // the scale. Returns true if the step was taken. Rank 0 reports the first skipped step on stderr, with the scale and,
  // if check_finite is on, the rank and the parameter; skipped() counts all of them. After 50 consecutive skipped steps
  // it throws the Error of DataParallelCore::CheckFinite: no scale helps against a real NaN.
  bool Step(DataParallelCore& model, torch::optim::Optimizer& optimizer);

  double scale() const { return state_.enabled ? state_.scale : 1.0; }
  std::uint64_t skipped() const { return skipped_; }  // number of skipped steps
  const GradScalerState& state() const { return state_; }
  void Load(const GradScalerState& state);
  // For State::Object (fulldeck/checkpoint.h): the exact state and skipped(). FromText throws an Error on anything that
  // ToText does not write, and then changes nothing.
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
