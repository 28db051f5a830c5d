// Land-cover tiles that are made, not read: seeded, with clean labels, and to be learnt only by shape.
//
// A tile is cut into two or three regions by straight borders; each shows the pattern of its class: blocks, a grid of
// lines, waves, a chequer, round crowns, rows, or nothing. The two tones of a pattern are drawn for each region from
// one distribution for all classes, half of a pattern is of the brighter tone, and all lies under the same noise: the
// color of a pixel says nothing of its class. Patterns repeat after 8 pixels at a random phase.
//
// Tile `index` of a split depends on (seed, split, index, size) alone, and is the same on every processor.
#pragma once

#include <memory>

#include "config/config.h"
#include "dataset/source.h"

namespace fulldeck::dataset {

// background, building, road, water, barren, forest, agricultural; data.classes renames them, and another number of
// names is an error. For classification a tile is one region.
base::Result<std::unique_ptr<Source>> OpenSynthetic(const config::Data& data, Split split, std::uint64_t seed);

}  // namespace fulldeck::dataset
