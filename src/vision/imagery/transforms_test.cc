#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "imagery/photometric.h"
#include "imagery/planes.h"
#include "imagery/resize.h"

namespace fulldeck::imagery {
namespace {

using ::testing::ElementsAre;

// Values that do not repeat near each other.
template <typename Value>
Raster<Value> Pattern(int width, int height, int bands) {
  Raster<Value> image{width, height, bands, {}};
  std::uint32_t state = 1;
  for (int i = 0; i < width * height * bands; ++i) {
    state = state * 1664525 + 1013904223;
    image.values.push_back(static_cast<Value>(state >> 24));
  }
  return image;
}

// By the definition, in double.
double Exact(const Image8& image, int scaled_width, int scaled_height, int x, int y, int band) {
  const auto place = [](int at, int source, int scaled) {
    return std::clamp((at + 0.5) * source / scaled - 0.5, 0.0, source - 1.0);
  };
  const double px = place(x, image.width, scaled_width);
  const double py = place(y, image.height, scaled_height);
  const int x0 = static_cast<int>(px);
  const int y0 = static_cast<int>(py);
  const int x1 = std::min(x0 + 1, image.width - 1);
  const int y1 = std::min(y0 + 1, image.height - 1);
  const double top = image.At(x0, y0)[band] * (1 - (px - x0)) + image.At(x1, y0)[band] * (px - x0);
  const double bottom = image.At(x0, y1)[band] * (1 - (px - x0)) + image.At(x1, y1)[band] * (px - x0);
  return top * (1 - (py - y0)) + bottom * (py - y0);
}

TEST(Resize, BilinearIsWhatItsDefinitionSays) {
  for (const int bands : {1, 3, 4}) {
    const Image8 image = Pattern<std::uint8_t>(37, 29, bands);
    for (const auto& [width, height] : {std::pair{74, 58}, {23, 17}, {37, 40}, {1, 1}, {111, 9}}) {
      const Window all{0, 0, width, height};
      const Image8 scaled = BilinearWindow(image, width, height, all);
      double worst = 0;
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          for (int band = 0; band < bands; ++band)
            worst = std::max(worst, std::abs(scaled.At(x, y)[band] - Exact(image, width, height, x, y, band)));
        }
      }
      EXPECT_LT(worst, 2.0) << width << " × " << height;
    }
  }
}

TEST(Resize, AWindowIsTheSamePartOfTheWhole) {
  const Image8 image = Pattern<std::uint8_t>(40, 31, 3);
  const Mask mask = Pattern<std::uint8_t>(40, 31, 1);
  ImageFloat floats{40, 31, 3, {image.values.begin(), image.values.end()}};
  const Window window{13, 7, 22, 30};
  for (const auto& [width, height] : {std::pair{80, 62}, {40, 37}, {40, 62}}) {
    const Window all{0, 0, width, height};
    const Image8 whole = BilinearWindow(image, width, height, all);
    const Image8 part = BilinearWindow(image, width, height, window);
    const ImageFloat float_part = BilinearWindow(floats, width, height, window);
    const Mask whole_mask = NearestWindow(mask, width, height, all);
    const Mask part_mask = NearestWindow(mask, width, height, window);
    for (int y = 0; y < window.height; ++y) {
      for (int x = 0; x < window.width; ++x) {
        ASSERT_TRUE(std::equal(part.At(x, y), part.At(x, y) + 3, whole.At(x + 13, y + 7)));
        ASSERT_EQ(*part_mask.At(x, y), *whole_mask.At(x + 13, y + 7));
        ASSERT_NEAR(float_part.At(x, y)[1], Exact(image, width, height, x + 13, y + 7, 1), 1e-3);
      }
    }
  }
}

TEST(Resize, MasksKeepTheirLabels) {
  Mask mask{2, 2, 1, {0, 7, 255, 3}};
  EXPECT_THAT(NearestWindow(mask, 4, 4, {0, 0, 4, 4}).values,
              ElementsAre(0, 0, 7, 7, 0, 0, 7, 7, 255, 255, 3, 3, 255, 255, 3, 3));
  EXPECT_THAT(NearestPositions(8, 4, 0, 4), ElementsAre(1, 3, 5, 7));
}

TEST(Planes, NormalizeOnceAndPadWithZeros) {
  const Image8 image{2, 1, 3, {255, 0, 51, 0, 255, 102}};
  const std::vector<double> mean = {0.5, 0, 0.2};
  const std::vector<double> std = {0.5, 1, 0.1};
  std::vector<float> planes(3 * 2 * 3, -7);
  ToPlanes(image, NormalizationTables(mean, std, nullptr), {}, 2, 3, planes.data());
  EXPECT_THAT(planes, ::testing::Pointwise(::testing::FloatNear(1e-5F),
                                           std::vector<float>{1, -1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0}));
  const ImageFloat floats{2, 1, 3, {1, 0, 0.2F, 0, 1, 0.4F}};
  std::vector<float> same(planes.size(), -7);
  ToPlanes(floats, mean, std, {}, 2, 3, same.data());
  EXPECT_THAT(same, ::testing::Pointwise(::testing::FloatNear(1e-5F), planes));
  std::vector<std::uint8_t> labels(6, 9);
  ToPlane(Mask{2, 1, 1, {4, 5}}, {}, 2, 3, labels.data());
  EXPECT_THAT(labels, ElementsAre(4, 5, 255, 255, 255, 255));
}

TEST(Planes, RotateAndFlipImagesAndMasksAlike) {
  // 1 2 3
  // 4 5 6
  const Mask mask{3, 2, 1, {1, 2, 3, 4, 5, 6}};
  const auto turned = [&mask](Orientation orientation) {
    const bool lies = orientation.quarter_turns % 2 == 0;
    std::vector<std::uint8_t> labels(6);
    ToPlane(mask, orientation, lies ? 2 : 3, lies ? 3 : 2, labels.data());
    return labels;
  };
  EXPECT_THAT(turned({1, false, false}), ElementsAre(3, 6, 2, 5, 1, 4));
  EXPECT_THAT(turned({2, false, false}), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(turned({3, false, false}), ElementsAre(4, 1, 5, 2, 6, 3));
  EXPECT_THAT(turned({0, true, false}), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(turned({0, false, true}), ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(turned({1, true, true}), ElementsAre(4, 1, 5, 2, 6, 3));
  const Mask large = Pattern<std::uint8_t>(70, 70, 1);  // long enough for the vectorized loop
  for (int quarter_turns = 0; quarter_turns < 4; ++quarter_turns) {
    for (int flips = 0; flips < 4; ++flips) {
      const Orientation orientation{quarter_turns, (flips & 1) != 0, (flips & 2) != 0};
      Image8 image{70, 70, 3, {}};
      for (const std::uint8_t value : large.values) image.values.insert(image.values.end(), {value, value, value});
      std::vector<std::uint8_t> labels(70 * 70);
      ToPlane(large, orientation, 70, 70, labels.data());
      std::vector<float> planes(3 * 70 * 70);
      ToPlanes(image, NormalizationTables({0, 0, 0}, {1, 1, 1}, nullptr), orientation, 70, 70, planes.data());
      for (std::size_t i = 0; i < planes.size(); ++i) ASSERT_NEAR(planes[i] * 255, labels[i % labels.size()], 1e-3);
    }
  }
}

Image8 OnePixel(int red, int green, int blue) {
  Image8 image{5, 3, 3, {}};
  for (int i = 0; i < 15; ++i) {
    for (const int value : {red, green, blue}) image.values.push_back(static_cast<std::uint8_t>(value));
  }
  return image;
}

std::vector<int> Changed(Image8 image, const Photometric& change) {
  ChangeAllButLastContrast(image, change);
  const auto last = LastContrastTable(change);
  for (std::size_t i = 3; i < image.values.size(); ++i) EXPECT_EQ(image.values[i], image.values[i - 3]);
  return {last[image.values[0]], last[image.values[1]], last[image.values[2]]};
}

TEST(Photometric, MatchesTheColorsOfOpenCv) {
  EXPECT_THAT(Changed(OnePixel(10, 100, 250), {.brightness = 20}), ElementsAre(30, 120, 255));
  EXPECT_THAT(Changed(OnePixel(10, 100, 250), {.contrast_first = 0.5}), ElementsAre(5, 50, 125));
  EXPECT_THAT(Changed(OnePixel(10, 100, 250), {.brightness = -20, .contrast_last = 1.5}), ElementsAre(0, 120, 255));
  // Half the saturation: the largest value is unchanged, the distances to it are halved.
  EXPECT_THAT(Changed(OnePixel(200, 100, 0), {.saturation = 0.5}), ElementsAre(200, 150, 100));
  EXPECT_THAT(Changed(OnePixel(200, 100, 100), {.saturation = 1.5}), ElementsAre(200, 50, 50));
  EXPECT_THAT(Changed(OnePixel(200, 0, 100), {.saturation = 1.5}), ElementsAre(200, 0, 100)) << "full is the most";
  // 60 of OpenCV's 180 degrees is a third of the circle: red becomes green.
  EXPECT_THAT(Changed(OnePixel(200, 30, 30), {.hue = 60}), ElementsAre(30, 200, 30));
  EXPECT_THAT(Changed(OnePixel(200, 30, 30), {.hue = -60}), ElementsAre(30, 30, 200));
  EXPECT_THAT(Changed(OnePixel(200, 30, 30), {.hue = 15}), ElementsAre(200, 115, 30));
  EXPECT_THAT(Changed(OnePixel(77, 77, 77), {.saturation = 1.5, .hue = 18}), ElementsAre(77, 77, 77));
}

TEST(Photometric, FloatsAndBytesAgree) {
  const Image8 bytes = Pattern<std::uint8_t>(31, 17, 3);
  for (const Photometric& change : {Photometric{.saturation = 0.6, .hue = 17}, Photometric{.brightness = 13.7},
                                    Photometric{.contrast_first = 1.4, .saturation = 1.3, .hue = -5},
                                    Photometric{.brightness = -30, .saturation = 1.5, .contrast_last = 0.7}}) {
    Image8 changed = bytes;
    ChangeAllButLastContrast(changed, change);
    const auto last = LastContrastTable(change);
    ImageFloat floats{31, 17, 3, {}};
    for (const std::uint8_t value : bytes.values) floats.values.push_back(static_cast<float>(value) / 255);
    Change(floats, change);
    double sum = 0;
    for (std::size_t i = 0; i < floats.values.size(); ++i) {
      const double difference = std::abs(floats.values[i] * 255 - last[changed.values[i]]);
      ASSERT_LT(difference, 12) << i;  // near gray, half a step of brightness changes the hue
      sum += difference;
    }
    EXPECT_LT(sum / static_cast<double>(floats.values.size()), 0.7);
  }
}

TEST(Photometric, LeavesOtherNumbersOfBandsTheirColors) {
  Image8 image = Pattern<std::uint8_t>(9, 9, 4);
  const Image8 before = image;
  ChangeAllButLastContrast(image, {.saturation = 0.5, .hue = 10});
  EXPECT_EQ(image, before);
}

}  // namespace
}  // namespace fulldeck::imagery
