// Prepares one sample for the model: scale, crop, flip and rotate, photometric distortion, normalize, pad. Does not
// read files (source.h) and does not batch (pipeline.h).
//
// Training draws from the given stream in a fixed order, as MMSegmentation does: scale; crop, drawn again up to ten
// times while one class has more than data.cat_max_ratio of the labeled pixels; flips and rotations; photometric
// distortion.
#pragma once

#include <fulldeck/random.h>

#include <cstdint>

#include "dataset/source.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

// Writes planes of data.size × data.size, one per band, and a plane of labels if the sample has a mask.
void PrepareForTraining(const Sample& sample, const model_spec::DataOptions& data, RandomStream& random, float* planes,
                        std::uint8_t* labels);

// The longer side resized to data.size; nothing random.
void PrepareResized(const Sample& sample, const model_spec::DataOptions& data, float* planes, std::uint8_t* labels);

// At its original size, padded to `height` × `width`.
void PrepareWhole(const Sample& sample, const model_spec::DataOptions& data, int height, int width, float* planes,
                  std::uint8_t* labels);

}  // namespace fulldeck::dataset
