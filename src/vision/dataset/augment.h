// One sample made ready for the model: scaled, cropped, turned, distorted, normalised, padded.
//
// Training draws from the given stream in a fixed order, as MMSegmentation does it: scale; crop, drawn again up to ten
// times while one class has more than data.cat_max_ratio of the labeled pixels; flips and turns; photometric
// distortion.
#pragma once

#include <fulldeck/random.h>

#include <cstdint>

#include "config/config.h"
#include "dataset/source.h"

namespace fulldeck::dataset {

// Writes planes of data.size × data.size (as many as bands), and where the sample has a mask a plane of labels.
void PrepareForTraining(const Sample& sample, const config::Data& data, RandomStream& random, float* planes,
                        std::uint8_t* labels);

// The longer side resized to data.size; nothing random.
void PrepareResized(const Sample& sample, const config::Data& data, float* planes, std::uint8_t* labels);

// As large as it is, padded to `height` × `width`.
void PrepareWhole(const Sample& sample, const config::Data& data, int height, int width, float* planes,
                  std::uint8_t* labels);

}  // namespace fulldeck::dataset
