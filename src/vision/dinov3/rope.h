// Rotary position embedding of DINOv3's attention: queries and keys are rotated by angles that grow with the patch's
// row and column. Computed in float32 whatever the type of the tokens.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <tuple>

namespace fulldeck::dinov3 {

// One row per token, one column per element of a head; `prefix` tokens (class, registers) come first and are not
// rotated.
struct RotaryTable {
  at::Tensor cos;  // [prefix + rows·columns, 1, head dim]
  // Same shape; the first half of each row is negated, so that a rotation needs one roll.
  at::Tensor signed_sin;
};

// Creates tables, and caches a few of those that are not rescaled, per grid and device. Not thread-safe.
class RotaryTables {
 public:
  // `head_dim`: a multiple of 4.
  RotaryTables(std::int64_t head_dim, double theta, std::int64_t prefix);
  // Coordinates are multiplied by `rescale`; 1: unchanged.
  RotaryTable Get(std::int64_t rows, std::int64_t columns, const c10::Device& device, double rescale = 1);

 private:
  at::Tensor Angles(std::int64_t rows, std::int64_t columns) const;  // [rows·columns, head dim], on the CPU

  std::int64_t head_dim_;
  double theta_;
  std::int64_t prefix_;
  std::map<std::tuple<std::int64_t, std::int64_t, c10::DeviceType, c10::DeviceIndex>, RotaryTable> kept_;
};

// Rotates tokens [N, tokens, heads, head dim]; keeps their type. Only the table is saved for backward.
at::Tensor ApplyRotary(const at::Tensor& tokens, const RotaryTable& table);

}  // namespace fulldeck::dinov3
