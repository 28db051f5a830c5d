// Synthetic land-cover tiles: seeded, with exact labels, and learnable only by shape.
//
// A tile is cut into two or three regions by straight borders. Each region shows the pattern of its class: blocks, a
// grid of lines, waves, a checkerboard, round crowns, rows, or nothing. The two tones of a pattern are drawn per region
// from one distribution for all classes, half of a pattern has the brighter tone, and all regions have the same noise:
// the color of a pixel reveals nothing about its class. Patterns repeat every 8 pixels, at a random phase.
//
// A tile depends only on (seed, split, index, size) and is the same on every CPU.
#pragma once

#include <memory>

#include "dataset/source.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

// Classes: background, building, road, water, barren, forest, agricultural. data.classes renames them; a different
// number of names is an error. For classification a tile is one region.
base::Result<std::unique_ptr<Source>> OpenSynthetic(const model_spec::DataOptions& data, Split split,
                                                    std::uint64_t seed);

}  // namespace fulldeck::dataset
