#include "imagery/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "imagery/kernels.h"

namespace fulldeck::imagery {
namespace {

// The source of one column or row of the window: source[first] · (1 − weight) + source[second] · weight.
struct Tap {
  int first = 0, second = 0;
  float weight = 0;
};

std::vector<Tap> Taps(int source, int scaled, int start, int count) {
  std::vector<Tap> taps(static_cast<std::size_t>(count));
  const double ratio = static_cast<double>(source) / scaled;
  for (int i = 0; i < count; ++i) {
    const double place = std::clamp((start + i + 0.5) * ratio - 0.5, 0.0, static_cast<double>(source - 1));
    const int first = static_cast<int>(place);
    taps[static_cast<std::size_t>(i)] = {first, std::min(first + 1, source - 1), static_cast<float>(place - first)};
  }
  return taps;
}

template <typename Value>
void CheckWindow(const Raster<Value>& image, int scaled_width, int scaled_height, const Window& window) {
  FULLDECK_CHECK(image.width > 0 && image.height > 0 && image.bands > 0 && window.width >= 0 && window.height >= 0);
  FULLDECK_CHECK(window.x >= 0 && window.y >= 0 && window.x + window.width <= scaled_width);
  FULLDECK_CHECK(window.y + window.height <= scaled_height);
}

template <typename Value>
Raster<Value> Empty(const Window& window, int bands) {
  Raster<Value> result{window.width, window.height, bands, {}};
  result.values.resize(static_cast<std::size_t>(window.width) * window.height * bands);
  return result;
}

template <typename Value>
Raster<Value> Cut(const Raster<Value>& image, const Window& window) {
  Raster<Value> result = Empty<Value>(window, image.bands);
  const std::size_t row = static_cast<std::size_t>(window.width) * image.bands;
  for (int y = 0; row > 0 && y < window.height; ++y)
    std::memcpy(result.At(0, y), image.At(window.x, window.y + y), row * sizeof(Value));
  return result;
}

}  // namespace

Image8 BilinearWindow(const Image8& image, int scaled_width, int scaled_height, const Window& window) {
  CheckWindow(image, scaled_width, scaled_height, window);
  if (scaled_width == image.width && scaled_height == image.height) return Cut(image, window);
  Image8 result = Empty<std::uint8_t>(window, image.bands);
  if (result.values.empty()) return result;
  const std::vector<Tap> columns = Taps(image.width, scaled_width, window.x, window.width);
  const std::vector<Tap> rows = Taps(image.height, scaled_height, window.y, window.height);
  std::vector<kernels::Column> column_taps(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    column_taps[i] = {columns[i].first * image.bands, columns[i].second * image.bands,
                      static_cast<std::int16_t>(std::lround(columns[i].weight * 128))};
  }
  // The last two rows of the source that were used, stretched to the window's width, in 1/128.
  const std::size_t row_values = static_cast<std::size_t>(window.width) * image.bands;
  std::vector<std::int16_t> stretched[2] = {std::vector<std::int16_t>(row_values),
                                            std::vector<std::int16_t>(row_values)};
  int held[2] = {-1, -1};
  for (int y = 0; y < window.height; ++y) {
    const Tap& tap = rows[static_cast<std::size_t>(y)];
    const int wanted[2] = {tap.first, tap.second};
    if (held[0] != wanted[0] && held[1] == wanted[0]) {
      std::swap(held[0], held[1]);
      std::swap(stretched[0], stretched[1]);
    }
    for (int i = 0; i < 2; ++i) {
      if (held[i] == wanted[i]) continue;
      kernels::StretchRow(image.At(0, wanted[i]), column_taps.data(), window.width, image.bands, stretched[i].data());
      held[i] = wanted[i];
    }
    kernels::MixRows(stretched[0].data(), stretched[1].data(), static_cast<std::int16_t>(std::lround(tap.weight * 128)),
                     row_values, result.At(0, y));
  }
  return result;
}

ImageFloat BilinearWindow(const ImageFloat& image, int scaled_width, int scaled_height, const Window& window) {
  CheckWindow(image, scaled_width, scaled_height, window);
  if (scaled_width == image.width && scaled_height == image.height) return Cut(image, window);
  ImageFloat result = Empty<float>(window, image.bands);
  const std::vector<Tap> columns = Taps(image.width, scaled_width, window.x, window.width);
  const std::vector<Tap> rows = Taps(image.height, scaled_height, window.y, window.height);
  for (int y = 0; y < window.height; ++y) {
    const Tap& row = rows[static_cast<std::size_t>(y)];
    for (int x = 0; x < window.width; ++x) {
      const Tap& column = columns[static_cast<std::size_t>(x)];
      const float* corners[4] = {image.At(column.first, row.first), image.At(column.second, row.first),
                                 image.At(column.first, row.second), image.At(column.second, row.second)};
      float* out = result.At(x, y);
      for (int band = 0; band < image.bands; ++band) {
        const float top = corners[0][band] + (corners[1][band] - corners[0][band]) * column.weight;
        const float bottom = corners[2][band] + (corners[3][band] - corners[2][band]) * column.weight;
        out[band] = top + (bottom - top) * row.weight;
      }
    }
  }
  return result;
}

std::vector<int> NearestPositions(int source, int scaled, int first, int count) {
  std::vector<int> positions(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto place =
        (2 * (static_cast<std::int64_t>(first) + i) + 1) * source / (2 * static_cast<std::int64_t>(scaled));
    positions[static_cast<std::size_t>(i)] = static_cast<int>(std::min<std::int64_t>(place, source - 1));
  }
  return positions;
}

Mask NearestWindow(const Mask& mask, int scaled_width, int scaled_height, const Window& window) {
  CheckWindow(mask, scaled_width, scaled_height, window);
  FULLDECK_CHECK(mask.bands == 1);
  if (scaled_width == mask.width && scaled_height == mask.height) return Cut(mask, window);
  Mask result = Empty<std::uint8_t>(window, 1);
  const std::vector<int> columns = NearestPositions(mask.width, scaled_width, window.x, window.width);
  const std::vector<int> rows = NearestPositions(mask.height, scaled_height, window.y, window.height);
  for (int y = 0; y < window.height; ++y) {
    const std::uint8_t* from = mask.At(0, rows[static_cast<std::size_t>(y)]);
    std::uint8_t* to = result.At(0, y);
    for (int x = 0; x < window.width; ++x) to[x] = from[columns[static_cast<std::size_t>(x)]];
  }
  return result;
}

}  // namespace fulldeck::imagery
