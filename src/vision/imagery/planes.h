// From pixels to what a model takes: planes of floats, normalised once, turned and flipped, padded at the right and at
// the bottom. One pass over the memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "imagery/image.h"

namespace fulldeck::imagery {

// First turned, then flipped.
struct Orientation {
  int quarter_turns = 0;  // 0 … 3, counter-clockwise
  bool flip = false;      // left and right
  bool vertical_flip = false;
};

// (value / 255 − mean) / std of 8-bit values, by table, after a table of theirs (`first`, 256 values).
std::vector<float> NormalizationTables(const std::vector<double>& mean, const std::vector<double>& std,
                                       const std::array<std::uint8_t, 256>* first);

// Planes of height × width each, one a band; what the image does not fill is 0. The turned image fits. `tables`: 256 a
// band.
void ToPlanes(const Image8& image, const std::vector<float>& tables, const Orientation& orientation, int height,
              int width, float* planes);
// Values of 0 … 1.
void ToPlanes(const ImageFloat& image, const std::vector<double>& mean, const std::vector<double>& std,
              const Orientation& orientation, int height, int width, float* planes);
// What the mask does not fill is 255.
void ToPlane(const Mask& mask, const Orientation& orientation, int height, int width, std::uint8_t* plane);

}  // namespace fulldeck::imagery
