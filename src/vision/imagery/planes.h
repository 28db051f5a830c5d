// Converts pixels to the model's input: planes of floats, normalized, rotated and flipped, padded on the right and at
// the bottom. One pass over the memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "imagery/image.h"

namespace fulldeck::imagery {

// The rotation is applied before the flips.
struct Orientation {
  int quarter_turns = 0;  // 0 … 3, counter-clockwise
  bool flip = false;      // left and right
  bool vertical_flip = false;
};

// One table per band of (value / 255 − mean) / std for 8-bit values; with `first` (256 values), of first[value].
std::vector<float> NormalizationTables(const std::vector<double>& mean, const std::vector<double>& std,
                                       const std::array<std::uint8_t, 256>* first);

// Planes of height × width, one per band; the area that the image does not cover is 0. The rotated image must fit.
// `tables`: 256 values per band.
void ToPlanes(const Image8& image, const std::vector<float>& tables, const Orientation& orientation, int height,
              int width, float* planes);
// Values in 0 … 1.
void ToPlanes(const ImageFloat& image, const std::vector<double>& mean, const std::vector<double>& std,
              const Orientation& orientation, int height, int width, float* planes);
// The area that the mask does not cover is 255.
void ToPlane(const Mask& mask, const Orientation& orientation, int height, int width, std::uint8_t* plane);

}  // namespace fulldeck::imagery
