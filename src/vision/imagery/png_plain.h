// Fast path for the PNG files that training data usually has (8 bits, not interlaced): about twice as fast as libpng,
// because libdeflate inflates them in one go. Any other file, and any invalid one, is left to libpng, which reads it or
// reports the problem.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "imagery/files.h"
#include "imagery/image.h"

namespace fulldeck::imagery {

struct PlainPng {
  Image8 image;  // with a palette: the indices
  bool palette = false;
  std::array<Color, 256> colors = {};  // colors that the file does not define are black
};

// nullopt: use libpng. Always nullopt in a build without libdeflate.
std::optional<PlainPng> DecodePlainPng(std::string_view bytes);

}  // namespace fulldeck::imagery
