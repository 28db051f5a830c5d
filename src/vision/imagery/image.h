// Pixels in memory: an image with any number of bands of 8-bit, 16-bit or float values, and a mask of class numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::imagery {

// Rows from the top, pixels from the left, bands interleaved.
template <typename Value>
struct Raster {
  int width = 0;
  int height = 0;
  int bands = 0;
  std::vector<Value> values;

  Value* At(int x, int y) { return values.data() + (static_cast<std::size_t>(y) * width + x) * bands; }
  const Value* At(int x, int y) const { return values.data() + (static_cast<std::size_t>(y) * width + x) * bands; }
  bool operator==(const Raster&) const = default;
};

using Mask = Raster<std::uint8_t>;  // one band
using Image8 = Raster<std::uint8_t>;
using Image16 = Raster<std::uint16_t>;
using ImageFloat = Raster<float>;

}  // namespace fulldeck::imagery
