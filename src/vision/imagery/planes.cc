#include "imagery/planes.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "imagery/kernels.h"

namespace fulldeck::imagery {
namespace {

// Pixel (x, y) of the result is pixel start + x · right + y · down of the source, counted in pixels.
struct Traversal {
  int width = 0, height = 0;
  std::ptrdiff_t start = 0, right = 1, down = 0;
};

Traversal TraversalOf(int width, int height, const Orientation& orientation) {
  const std::ptrdiff_t row = width;
  const std::ptrdiff_t pixels = row * height;
  Traversal traversal;
  switch (orientation.quarter_turns & 3) {
    case 0:
      traversal = {width, height, 0, 1, row};
      break;
    case 1:  // the right edge becomes the top
      traversal = {height, width, row - 1, row, -1};
      break;
    case 2:
      traversal = {width, height, pixels - 1, -1, -row};
      break;
    default:  // the left edge becomes the top, read from below
      traversal = {height, width, pixels - row, -row, 1};
      break;
  }
  if (orientation.flip) {
    traversal.start += traversal.right * (traversal.width - 1);
    traversal.right = -traversal.right;
  }
  if (orientation.vertical_flip) {
    traversal.start += traversal.down * (traversal.height - 1);
    traversal.down = -traversal.down;
  }
  return traversal;
}

// Calls write(plane, x, y, pixel of the source) for every pixel, and fills the rest of the planes with zeros.
template <typename Value, typename Convert>
void Fill(const Raster<Value>& image, const Traversal& traversal, int height, int width, float* planes,
          const Convert& convert) {
  for (int band = 0; band < image.bands; ++band) {
    float* plane = planes + static_cast<std::size_t>(band) * height * width;
    for (int y = 0; y < traversal.height; ++y) {
      const Value* from = image.values.data() + (traversal.start + y * traversal.down) * image.bands + band;
      float* to = plane + static_cast<std::size_t>(y) * width;
      const std::ptrdiff_t step = traversal.right * image.bands;
      for (int x = 0; x < traversal.width; ++x) to[x] = convert(band, from[x * step]);
    }
  }
}

void PadPlanes(int bands, const Traversal& traversal, int height, int width, float* planes) {
  for (int band = 0; band < bands; ++band) {
    float* plane = planes + static_cast<std::size_t>(band) * height * width;
    if (traversal.width < width) {
      for (int y = 0; y < traversal.height; ++y) {
        float* row = plane + static_cast<std::size_t>(y) * width;
        std::fill(row + traversal.width, row + width, 0.0F);
      }
    }
    std::fill(plane + static_cast<std::size_t>(traversal.height) * width,
              plane + static_cast<std::size_t>(height) * width, 0.0F);
  }
}

}  // namespace

std::vector<float> NormalizationTables(const std::vector<double>& mean, const std::vector<double>& std,
                                       const std::array<std::uint8_t, 256>* first) {
  FULLDECK_CHECK(mean.size() == std.size());
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

void ToPlanes(const Image8& image, const std::vector<float>& tables, const Orientation& orientation, int height,
              int width, float* planes) {
  FULLDECK_CHECK(tables.size() == static_cast<std::size_t>(image.bands) * 256);
  const Traversal traversal = TraversalOf(image.width, image.height, orientation);
  FULLDECK_CHECK(traversal.width <= width && traversal.height <= height);
  if (image.bands == 3 && (traversal.right == 1 || traversal.right == -1)) {
    const std::size_t plane = static_cast<std::size_t>(height) * width;
    for (int y = 0; y < traversal.height; ++y) {
      float* row = planes + static_cast<std::size_t>(y) * width;
      const bool backwards = traversal.right < 0;
      const std::ptrdiff_t leftmost = traversal.start + y * traversal.down - (backwards ? traversal.width - 1 : 0);
      kernels::SplitRow(image.values.data() + leftmost * 3, traversal.width, backwards, tables.data(), row, row + plane,
                        row + 2 * plane);
    }
  } else {
    const float* all = tables.data();
    Fill(image, traversal, height, width, planes,
         [all](int band, std::uint8_t value) { return all[band * 256 + value]; });
  }
  PadPlanes(image.bands, traversal, height, width, planes);
}

void ToPlanes(const ImageFloat& image, const std::vector<double>& mean, const std::vector<double>& std,
              const Orientation& orientation, int height, int width, float* planes) {
  FULLDECK_CHECK(mean.size() == static_cast<std::size_t>(image.bands) && std.size() == mean.size());
  const Traversal traversal = TraversalOf(image.width, image.height, orientation);
  FULLDECK_CHECK(traversal.width <= width && traversal.height <= height);
  Fill(image, traversal, height, width, planes, [&mean, &std](int band, float value) {
    const auto index = static_cast<std::size_t>(band);
    return static_cast<float>((value - mean[index]) / std[index]);
  });
  PadPlanes(image.bands, traversal, height, width, planes);
}

void ToPlane(const Mask& mask, const Orientation& orientation, int height, int width, std::uint8_t* plane) {
  FULLDECK_CHECK(mask.bands == 1);
  const Traversal traversal = TraversalOf(mask.width, mask.height, orientation);
  FULLDECK_CHECK(traversal.width <= width && traversal.height <= height);
  for (int y = 0; y < height; ++y) {
    std::uint8_t* to = plane + static_cast<std::size_t>(y) * width;
    if (y >= traversal.height) {
      std::memset(to, 255, static_cast<std::size_t>(width));
      continue;
    }
    const std::uint8_t* from = mask.values.data() + traversal.start + y * traversal.down;
    if (traversal.right == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(traversal.width));
    } else {
      for (int x = 0; x < traversal.width; ++x) to[x] = from[x * traversal.right];
    }
    std::memset(to + traversal.width, 255, static_cast<std::size_t>(width - traversal.width));
  }
}

}  // namespace fulldeck::imagery
