#include "imagery/kernels.h"

#include <algorithm>
#include <cstring>

// Each loop is compiled twice if the target may have AVX2: for every CPU, and for CPUs with AVX2. The compiler
// vectorizes the loops (flags in cmake/image_libraries.cmake), so they have no branches.
#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define WITH_AVX2 __attribute__((target("avx2")))
#endif

namespace fulldeck::imagery::kernels {
namespace {

constexpr std::size_t kBlock = 64;  // pixels

ALWAYS_INLINE float Larger(float a, float b) {
  return a > b ? a : b;
}
ALWAYS_INLINE float Smaller(float a, float b) {
  return a < b ? a : b;
}

// The channel at offset n of the hexagon (5: red, 3: green, 1: blue): value − chroma · clamp(min(k, 4 − k)), k = (n +
// hue) mod 6.
ALWAYS_INLINE float Channel(float n, float hue, float value, float chroma) {
  float k = n + hue;
  k = k >= 6 ? k - 6 : k;
  return value - chroma * Larger(0, Smaller(Smaller(k, 4 - k), 1));
}

// A block of pixels, by channel, values in 0 … white.
ALWAYS_INLINE void RotateHueOfBlock(float* reds, float* greens, float* blues, float saturation, float hue) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float red = reds[i];
    const float green = greens[i];
    const float blue = blues[i];
    const float value = Larger(red, Larger(green, blue));
    const float chroma = value - Smaller(red, Smaller(green, blue));
    const float inverse = 1 / Larger(chroma, 1e-6F);
    const float from_red = (green - blue) * inverse;
    const float from_green = 2 + (blue - red) * inverse;
    const float from_blue = 4 + (red - green) * inverse;
    float turned = value == green ? from_green : from_blue;
    turned = (value == red ? from_red : turned) + hue;
    turned = turned < 0 ? turned + 6 : turned;
    turned = turned >= 6 ? turned - 6 : turned;
    const float full = Smaller(value, chroma * saturation);  // the most saturated color has chroma = value
    reds[i] = Channel(5, turned, value, full);
    greens[i] = Channel(3, turned, value, full);
    blues[i] = Channel(1, turned, value, full);
  }
}

ALWAYS_INLINE void ChangeBytes(std::uint8_t* pixels, std::size_t count, const std::uint8_t* table, float saturation,
                               float hue) {
  float tones[256];
  for (std::size_t i = 0; i < 256; ++i) tones[i] = table[i];
  float channels[3][kBlock] = {};
  std::uint8_t bytes[3][kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    std::uint8_t* block = pixels + 3 * at;
    const std::size_t here = std::min(kBlock, count - at);
    for (std::size_t i = 0; i < here; ++i) {
      for (std::size_t band = 0; band < 3; ++band) channels[band][i] = tones[block[3 * i + band]];
    }
    RotateHueOfBlock(channels[0], channels[1], channels[2], saturation, hue);
    for (std::size_t band = 0; band < 3; ++band) {
      for (std::size_t i = 0; i < kBlock; ++i) {
        const float raised = channels[band][i] + 0.5F;  // never negative, so truncation rounds
        bytes[band][i] = static_cast<std::uint8_t>(static_cast<int>(raised));
      }
    }
    for (std::size_t i = 0; i < here; ++i) {
      for (std::size_t band = 0; band < 3; ++band) block[3 * i + band] = bytes[band][i];
    }
  }
}

ALWAYS_INLINE void Stretch(const std::uint8_t* row, const Column* columns, int width, int bands, std::int16_t* out) {
  for (int x = 0; x < width; ++x) {
    const std::uint8_t* first = row + columns[x].first;
    const std::uint8_t* second = row + columns[x].second;
    const int weight = columns[x].weight;
    for (int band = 0; band < bands; ++band)
      *out++ = static_cast<std::int16_t>(first[band] * 128 + (second[band] - first[band]) * weight);
  }
}

ALWAYS_INLINE void Mix(const std::int16_t* first, const std::int16_t* second, int weight, std::size_t count,
                       std::uint8_t* out) {
  const int rest = 128 - weight;
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>((first[i] * rest + second[i] * weight + (1 << 13)) >> 14);
}

ALWAYS_INLINE std::uint8_t Largest(const std::uint8_t* labels, std::size_t count) {
  std::uint8_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto next = static_cast<std::uint8_t>(labels[i] + 1);
    most = most > next ? most : next;
  }
  return most;
}

#ifdef WITH_AVX2
bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
WITH_AVX2 void ChangeBytesAvx2(std::uint8_t* pixels, std::size_t count, const std::uint8_t* table, float saturation,
                               float hue) {
  ChangeBytes(pixels, count, table, saturation, hue);
}
WITH_AVX2 void MixAvx2(const std::int16_t* first, const std::int16_t* second, int weight, std::size_t count,
                       std::uint8_t* out) {
  Mix(first, second, weight, count, out);
}
#endif

}  // namespace

void StretchRow(const std::uint8_t* row, const Column* columns, int width, int bands, std::int16_t* out) {
  if (bands == 3) {
    Stretch(row, columns, width, 3, out);
  } else {
    Stretch(row, columns, width, bands, out);
  }
}

void MixRows(const std::int16_t* first, const std::int16_t* second, std::int16_t weight, std::size_t count,
             std::uint8_t* out) {
#ifdef WITH_AVX2
  if (HasAvx2()) return MixAvx2(first, second, weight, count, out);
#endif
  Mix(first, second, weight, count, out);
}

void ChangeColors(std::uint8_t* pixels, std::size_t count, const std::uint8_t* table, float saturation, float hue) {
#ifdef WITH_AVX2
  if (HasAvx2()) return ChangeBytesAvx2(pixels, count, table, saturation, hue);
#endif
  ChangeBytes(pixels, count, table, saturation, hue);
}

void ChangeColors(float* pixels, std::size_t count, float saturation, float hue) {
  float channels[3][kBlock] = {};
  for (std::size_t at = 0; at < count; at += kBlock) {
    float* block = pixels + 3 * at;
    const std::size_t here = std::min(kBlock, count - at);
    for (std::size_t i = 0; i < here; ++i) {
      for (std::size_t band = 0; band < 3; ++band) channels[band][i] = Larger(0, Smaller(1, block[3 * i + band]));
    }
    RotateHueOfBlock(channels[0], channels[1], channels[2], saturation, hue);
    for (std::size_t i = 0; i < here; ++i) {
      for (std::size_t band = 0; band < 3; ++band) block[3 * i + band] = channels[band][i];
    }
  }
}

void SplitRow(const std::uint8_t* pixels, int width, bool backwards, const float* tables, float* red, float* green,
              float* blue) {
  if (backwards) {
    const std::uint8_t* last = pixels + 3 * (static_cast<std::ptrdiff_t>(width) - 1);
    for (int x = 0; x < width; ++x, last -= 3) {
      red[x] = tables[last[0]];
      green[x] = tables[256 + last[1]];
      blue[x] = tables[512 + last[2]];
    }
    return;
  }
  for (int x = 0; x < width; ++x, pixels += 3) {
    red[x] = tables[pixels[0]];
    green[x] = tables[256 + pixels[1]];
    blue[x] = tables[512 + pixels[2]];
  }
}

std::uint8_t LargestLabelPlusOne(const std::uint8_t* labels, std::size_t count) {
  return Largest(labels, count);
}

}  // namespace fulldeck::imagery::kernels
