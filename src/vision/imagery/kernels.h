// The loops that training's images spend their time in. The results are the same on every processor: fixed point, or
// float operations in a fixed order without fusing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::imagery::kernels {

// Values at `first` and `second` of a row, mixed with `weight` 128ths of the second.
struct Column {
  std::int32_t first = 0, second = 0;
  std::int16_t weight = 0;
};

// One row of `width` pixels, in 1/128.
void StretchRow(const std::uint8_t* row, const Column* columns, int width, int bands, std::int16_t* out);
// (128 − weight) of the first and `weight` of the second, rounded.
void MixRows(const std::int16_t* first, const std::int16_t* second, std::int16_t weight, std::size_t count,
             std::uint8_t* out);

// `count` RGB pixels, each value looked up in a table of 256 before; then saturation (HSV, S × saturation, at most
// full) and hue (turned by `hue` sixths of the circle, −6 … 6) change in place.
void ChangeColors(std::uint8_t* pixels, std::size_t count, const std::uint8_t* table, float saturation, float hue);
// The same with values of 0 … 1 (more and less are cut off).
void ChangeColors(float* pixels, std::size_t count, float saturation, float hue);

// RGB pixels to three planes, each value looked up in its band's table of 256; `backwards`: the last pixel first.
void SplitRow(const std::uint8_t* pixels, int width, bool backwards, const float* tables, float* red, float* green,
              float* blue);

// The largest label that is not 255, and one; 0 where there is none.
std::uint8_t LargestLabelPlusOne(const std::uint8_t* labels, std::size_t count);

}  // namespace fulldeck::imagery::kernels
