#include "imagery/photometric.h"

#include <algorithm>
#include <cmath>

#include "imagery/kernels.h"

namespace fulldeck::imagery {
namespace {

std::uint8_t Step(std::uint8_t value, double factor, double added) {
  return static_cast<std::uint8_t>(std::lround(std::clamp(value * factor + added, 0.0, 255.0)));
}

}  // namespace

void ChangeAllButLastContrast(Image8& image, const Photometric& change) {
  std::array<std::uint8_t, 256> table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<std::size_t>(value)] =
        Step(Step(static_cast<std::uint8_t>(value), 1, change.brightness), change.contrast_first, 0);
  }
  if (image.bands == 3 && (change.saturation != 1 || change.hue != 0)) {
    kernels::ChangeColors(image.values.data(), image.values.size() / 3, table.data(),
                          static_cast<float>(change.saturation), static_cast<float>(change.hue) / 30.0F);
  } else if (change.brightness != 0 || change.contrast_first != 1) {
    for (std::uint8_t& value : image.values) value = table[value];
  }
}

void Change(ImageFloat& image, const Photometric& change) {
  const auto step = [&image](double factor, double added) {
    if (factor == 1 && added == 0) return;
    for (float& value : image.values)
      value = std::clamp(value * static_cast<float>(factor) + static_cast<float>(added), 0.0F, 1.0F);
  };
  step(1, change.brightness / 255);
  step(change.contrast_first, 0);
  if (image.bands == 3 && (change.saturation != 1 || change.hue != 0)) {
    kernels::ChangeColors(image.values.data(), image.values.size() / 3, static_cast<float>(change.saturation),
                          static_cast<float>(change.hue) / 30.0F);
  }
  step(change.contrast_last, 0);
}

std::array<std::uint8_t, 256> LastContrastTable(const Photometric& change) {
  std::array<std::uint8_t, 256> table;
  for (int value = 0; value < 256; ++value)
    table[static_cast<std::size_t>(value)] = Step(static_cast<std::uint8_t>(value), change.contrast_last, 0);
  return table;
}

}  // namespace fulldeck::imagery
