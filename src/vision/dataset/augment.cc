#include "dataset/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "imagery/photometric.h"
#include "imagery/planes.h"
#include "imagery/resize.h"

namespace fulldeck::dataset {
namespace {

constexpr int kCropTries = 10;

struct Size {
  int width = 0, height = 0;
};

Size Scaled(const SampleImage& image, double factor) {
  const auto side = [factor](int length) { return std::max(1, static_cast<int>(std::lround(length * factor))); };
  return {side(WidthOf(image)), side(HeightOf(image))};
}

// The factor that scales the longer side to data.size.
double Fitting(const SampleImage& image, const model_spec::DataOptions& data) {
  return static_cast<double>(data.size) / std::max(WidthOf(image), HeightOf(image));
}

// Whether the labeled pixels of the window have several classes, none of which has the given share or more.
bool IsMixed(const imagery::Mask& mask, const Size& scaled, const imagery::Window& window, double most_share) {
  const std::vector<int> columns = imagery::NearestPositions(mask.width, scaled.width, window.x, window.width);
  const std::vector<int> rows = imagery::NearestPositions(mask.height, scaled.height, window.y, window.height);
  // Neighbors usually have the same class: four tables, so that an increment does not wait for the one before it.
  std::array<std::array<std::uint32_t, 256>, 4> counts = {};
  for (const int row : rows) {
    const std::uint8_t* labels = mask.At(0, row);
    std::size_t x = 0;
    for (; x + 4 <= columns.size(); x += 4) {
      for (std::size_t lane = 0; lane < 4; ++lane) ++counts[lane][labels[columns[x + lane]]];
    }
    for (; x < columns.size(); ++x) ++counts[0][labels[columns[x]]];
  }
  std::uint64_t labeled = 0;
  std::uint64_t most = 0;
  int classes = 0;
  for (std::size_t label = 0; label < 255; ++label) {
    const std::uint64_t count =
        std::uint64_t{counts[0][label]} + counts[1][label] + counts[2][label] + counts[3][label];
    labeled += count;
    most = std::max(most, count);
    classes += count > 0 ? 1 : 0;
  }
  return classes > 1 && static_cast<double>(most) < most_share * static_cast<double>(labeled);
}

imagery::Photometric DrawPhotometric(RandomStream& random) {
  imagery::Photometric change;
  const auto chosen = [&random] { return (random.Next32() & 1) != 0; };
  if (chosen()) change.brightness = random.Uniform(-32, 32);
  const bool contrast_first = chosen();
  const double contrast = chosen() ? random.Uniform(0.5, 1.5) : 1;
  (contrast_first ? change.contrast_first : change.contrast_last) = contrast;
  if (chosen()) change.saturation = random.Uniform(0.5, 1.5);
  if (chosen()) change.hue = static_cast<int>(random.Below(36)) - 18;
  return change;
}

void WritePlanes(SampleImage& image, const model_spec::DataOptions& data, const imagery::Photometric& change,
                 const imagery::Orientation& orientation, int height, int width, float* planes) {
  if (auto* bytes = std::get_if<imagery::Image8>(&image)) {
    imagery::ChangeAllButLastContrast(*bytes, change);
    const auto contrast = imagery::LastContrastTable(change);
    imagery::ToPlanes(*bytes, imagery::NormalizationTables(data.mean, data.std, &contrast), orientation, height, width,
                      planes);
    return;
  }
  auto& floats = std::get<imagery::ImageFloat>(image);
  if (!change.nothing()) imagery::Change(floats, change);
  imagery::ToPlanes(floats, data.mean, data.std, orientation, height, width, planes);
}

SampleImage Shown(const SampleImage& image, const Size& scaled, const imagery::Window& window) {
  return std::visit(
      [&](const auto& held) { return SampleImage(imagery::BilinearWindow(held, scaled.width, scaled.height, window)); },
      image);
}

}  // namespace

void PrepareForTraining(const Sample& sample, const model_spec::DataOptions& data, RandomStream& random, float* planes,
                        std::uint8_t* labels) {
  const int side = static_cast<int>(data.size);
  double factor = random.Uniform(data.scale[0], data.scale[1]);
  // Images of a classification dataset differ in size, and the whole image counts.
  if (labels == nullptr) factor *= Fitting(sample.image, data);
  const Size scaled = Scaled(sample.image, factor);
  imagery::Window window{0, 0, std::min(side, scaled.width), std::min(side, scaled.height)};
  const auto draw_window = [&] {
    window.y = static_cast<int>(random.Below(static_cast<std::uint64_t>(scaled.height - window.height) + 1));
    window.x = static_cast<int>(random.Below(static_cast<std::uint64_t>(scaled.width - window.width) + 1));
  };
  draw_window();
  const bool only_one = scaled.width == window.width && scaled.height == window.height;
  if (labels != nullptr && data.cat_max_ratio < 1 && !only_one) {
    for (int tries = 0; tries < kCropTries && !IsMixed(sample.mask, scaled, window, data.cat_max_ratio); ++tries)
      draw_window();
  }
  imagery::Orientation orientation;
  if (data.rotate90) orientation.quarter_turns = static_cast<int>(random.Below(4));
  orientation.flip = random.Uniform() < data.flip;
  orientation.vertical_flip = random.Uniform() < data.vertical_flip;
  imagery::Photometric change;
  if (data.photometric) change = DrawPhotometric(random);

  SampleImage image = Shown(sample.image, scaled, window);
  WritePlanes(image, data, change, orientation, side, side, planes);
  if (labels != nullptr)
    imagery::ToPlane(imagery::NearestWindow(sample.mask, scaled.width, scaled.height, window), orientation, side, side,
                     labels);
}

void PrepareResized(const Sample& sample, const model_spec::DataOptions& data, float* planes, std::uint8_t* labels) {
  const int side = static_cast<int>(data.size);
  const Size scaled = Scaled(sample.image, Fitting(sample.image, data));
  const imagery::Window window{0, 0, scaled.width, scaled.height};
  SampleImage image = Shown(sample.image, scaled, window);
  WritePlanes(image, data, {}, {}, side, side, planes);
  if (labels != nullptr)
    imagery::ToPlane(imagery::NearestWindow(sample.mask, scaled.width, scaled.height, window), {}, side, side, labels);
}

void PrepareWhole(const Sample& sample, const model_spec::DataOptions& data, int height, int width, float* planes,
                  std::uint8_t* labels) {
  if (const auto* bytes = std::get_if<imagery::Image8>(&sample.image)) {
    imagery::ToPlanes(*bytes, imagery::NormalizationTables(data.mean, data.std, nullptr), {}, height, width, planes);
  } else {
    imagery::ToPlanes(std::get<imagery::ImageFloat>(sample.image), data.mean, data.std, {}, height, width, planes);
  }
  if (labels != nullptr) imagery::ToPlane(sample.mask, {}, height, width, labels);
}

}  // namespace fulldeck::dataset
