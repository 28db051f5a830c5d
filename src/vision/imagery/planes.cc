#include "imagery/planes.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "imagery/kernels.h"

namespace fulldeck::imagery {
namespace {

// Pixel (x, y) of the result is pixel start + x · right + y · down of the source, counted in pixels.
struct Walk {
  int width = 0, height = 0;
  std::ptrdiff_t start = 0, right = 1, down = 0;
};

Walk WalkOf(int width, int height, const Turn& turn) {
  const std::ptrdiff_t row = width;
  const std::ptrdiff_t pixels = row * height;
  Walk walk;
  switch (turn.quarter_turns & 3) {
    case 0:
      walk = {width, height, 0, 1, row};
      break;
    case 1:  // the right edge becomes the top
      walk = {height, width, row - 1, row, -1};
      break;
    case 2:
      walk = {width, height, pixels - 1, -1, -row};
      break;
    default:  // the left edge becomes the top, from below
      walk = {height, width, pixels - row, -row, 1};
      break;
  }
  if (turn.flip) {
    walk.start += walk.right * (walk.width - 1);
    walk.right = -walk.right;
  }
  if (turn.vertical_flip) {
    walk.start += walk.down * (walk.height - 1);
    walk.down = -walk.down;
  }
  return walk;
}

// Calls write(plane, x, y, pixel of the source) for every pixel, and leaves zero in the rest of the planes.
template <typename Value, typename Look>
void Fill(const Raster<Value>& image, const Walk& walk, int height, int width, float* planes, const Look& look) {
  for (int band = 0; band < image.bands; ++band) {
    float* plane = planes + static_cast<std::size_t>(band) * height * width;
    for (int y = 0; y < walk.height; ++y) {
      const Value* from = image.values.data() + (walk.start + y * walk.down) * image.bands + band;
      float* to = plane + static_cast<std::size_t>(y) * width;
      const std::ptrdiff_t step = walk.right * image.bands;
      for (int x = 0; x < walk.width; ++x) to[x] = look(band, from[x * step]);
    }
  }
}

void PadPlanes(int bands, const Walk& walk, int height, int width, float* planes) {
  for (int band = 0; band < bands; ++band) {
    float* plane = planes + static_cast<std::size_t>(band) * height * width;
    if (walk.width < width) {
      for (int y = 0; y < walk.height; ++y) {
        float* row = plane + static_cast<std::size_t>(y) * width;
        std::fill(row + walk.width, row + width, 0.0F);
      }
    }
    std::fill(plane + static_cast<std::size_t>(walk.height) * width, plane + static_cast<std::size_t>(height) * width,
              0.0F);
  }
}

}  // namespace

std::vector<float> NormalisingTables(const std::vector<double>& mean, const std::vector<double>& std,
                                     const std::array<std::uint8_t, 256>* first) {
  CHECK(mean.size() == std.size());
  std::vector<float> tables;
  tables.reserve(mean.size() * 256);
  for (std::size_t band = 0; band < mean.size(); ++band) {
    for (std::size_t value = 0; value < 256; ++value) {
      const double seen = first != nullptr ? (*first)[value] : static_cast<double>(value);
      tables.push_back(static_cast<float>((seen / 255 - mean[band]) / std[band]));
    }
  }
  return tables;
}

void ToPlanes(const Image8& image, const std::vector<float>& tables, const Turn& turn, int height, int width,
              float* planes) {
  CHECK(tables.size() == static_cast<std::size_t>(image.bands) * 256);
  const Walk walk = WalkOf(image.width, image.height, turn);
  CHECK(walk.width <= width && walk.height <= height);
  if (image.bands == 3 && (walk.right == 1 || walk.right == -1)) {
    const std::size_t plane = static_cast<std::size_t>(height) * width;
    for (int y = 0; y < walk.height; ++y) {
      float* row = planes + static_cast<std::size_t>(y) * width;
      const bool backwards = walk.right < 0;
      const std::ptrdiff_t leftmost = walk.start + y * walk.down - (backwards ? walk.width - 1 : 0);
      kernels::SplitRow(image.values.data() + leftmost * 3, walk.width, backwards, tables.data(), row, row + plane,
                        row + 2 * plane);
    }
  } else {
    const float* all = tables.data();
    Fill(image, walk, height, width, planes, [all](int band, std::uint8_t value) { return all[band * 256 + value]; });
  }
  PadPlanes(image.bands, walk, height, width, planes);
}

void ToPlanes(const ImageFloat& image, const std::vector<double>& mean, const std::vector<double>& std,
              const Turn& turn, int height, int width, float* planes) {
  CHECK(mean.size() == static_cast<std::size_t>(image.bands) && std.size() == mean.size());
  const Walk walk = WalkOf(image.width, image.height, turn);
  CHECK(walk.width <= width && walk.height <= height);
  Fill(image, walk, height, width, planes, [&mean, &std](int band, float value) {
    const auto place = static_cast<std::size_t>(band);
    return static_cast<float>((value - mean[place]) / std[place]);
  });
  PadPlanes(image.bands, walk, height, width, planes);
}

void ToPlane(const Mask& mask, const Turn& turn, int height, int width, std::uint8_t* plane) {
  CHECK(mask.bands == 1);
  const Walk walk = WalkOf(mask.width, mask.height, turn);
  CHECK(walk.width <= width && walk.height <= height);
  for (int y = 0; y < height; ++y) {
    std::uint8_t* to = plane + static_cast<std::size_t>(y) * width;
    if (y >= walk.height) {
      std::memset(to, 255, static_cast<std::size_t>(width));
      continue;
    }
    const std::uint8_t* from = mask.values.data() + walk.start + y * walk.down;
    if (walk.right == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(walk.width));
    } else {
      for (int x = 0; x < walk.width; ++x) to[x] = from[x * walk.right];
    }
    std::memset(to + walk.width, 255, static_cast<std::size_t>(width - walk.width));
  }
}

}  // namespace fulldeck::imagery
