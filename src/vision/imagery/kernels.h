// The hot loops of image preparation. The results are the same on every CPU: fixed point, or float operations in a
// fixed order without fused multiply-add.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::imagery::kernels {

// Interpolates the values at `first` and `second` of a row; `weight` is the second one's share in 1/128.
struct Column {
  std::int32_t first = 0, second = 0;
  std::int16_t weight = 0;
};

// One row of `width` pixels, in 1/128.
void StretchRow(const std::uint8_t* row, const Column* columns, int width, int bands, std::int16_t* out);
// (128 − weight) of the first and `weight` of the second, rounded.
void MixRows(const std::int16_t* first, const std::int16_t* second, std::int16_t weight, std::size_t count,
             std::uint8_t* out);

// `count` RGB pixels, in place: looks each value up in a table of 256, then changes saturation (HSV, S × saturation,
// clamped to 1) and hue (rotated by `hue` sixths of the circle, −6 … 6).
void ChangeColors(std::uint8_t* pixels, std::size_t count, const std::uint8_t* table, float saturation, float hue);
// The same for values in 0 … 1, without a table; results are clamped.
void ChangeColors(float* pixels, std::size_t count, float saturation, float hue);

// RGB pixels to three planes; each value is looked up in its band's table of 256. `backwards`: the last pixel first.
void SplitRow(const std::uint8_t* pixels, int width, bool backwards, const float* tables, float* red, float* green,
              float* blue);

// The largest label other than 255, plus one; 0 if there is none.
std::uint8_t LargestLabelPlusOne(const std::uint8_t* labels, std::size_t count);

}  // namespace fulldeck::imagery::kernels
