// Where a patch lies, as DINOv3 tells its attention: queries and keys are turned by angles that grow with the patch's
// row and column. Computed in float32 whatever the type of the tokens.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <tuple>

namespace fulldeck::dinov3 {

// One row a token, one column a number of a head; `prefix` tokens (class, registers) come first and are not turned.
struct RotaryTable {
  at::Tensor cos;         // [prefix + rows·columns, 1, head dim]
  at::Tensor signed_sin;  // the same; the first half of each row is negated, so that turning is one roll
};

// Makes tables, and keeps those that were not rescaled, a few per grid and device. Not for several threads at once.
class RotaryTables {
 public:
  // `head_dim`: a multiple of 4.
  RotaryTables(std::int64_t head_dim, double theta, std::int64_t prefix);
  // Coordinates are multiplied by `rescale`; 1: as they are.
  RotaryTable Get(std::int64_t rows, std::int64_t columns, const c10::Device& device, double rescale = 1);

 private:
  at::Tensor Angles(std::int64_t rows, std::int64_t columns) const;  // [rows·columns, head dim], on the host

  std::int64_t head_dim_;
  double theta_;
  std::int64_t prefix_;
  std::map<std::tuple<std::int64_t, std::int64_t, c10::DeviceType, c10::DeviceIndex>, RotaryTable> kept_;
};

// Tokens [N, tokens, heads, head dim] turned; of the same type. Backward keeps the table alone.
at::Tensor ApplyRotary(const at::Tensor& tokens, const RotaryTable& table);

}  // namespace fulldeck::dinov3
