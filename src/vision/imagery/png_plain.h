// The PNG files that training data is made of (8 bits, not interlaced), decoded about twice as fast as by libpng:
// inflated in one go by libdeflate. A file that is anything else, or has anything wrong with it, is left to libpng,
// which reads it or says what is wrong.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "imagery/files.h"
#include "imagery/image.h"

namespace fulldeck::imagery {

struct PlainPng {
  Image8 image;  // of a palette: its indices
  bool palette = false;
  std::array<Color, 256> colors = {};  // those that the file does not have are black
};

// Nothing: leave it to libpng. Always nothing in a build without libdeflate.
std::optional<PlainPng> DecodePlainPng(std::string_view bytes);

}  // namespace fulldeck::imagery
