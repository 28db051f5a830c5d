#include <cmath>
#include <utility>

#include "base/text.h"
#include "dataset/source.h"

namespace fulldeck::dataset {
namespace {

// Full white of integer types if the config does not set it.
constexpr double WhiteOf(const imagery::Image8&) {
  return 255;
}
constexpr double WhiteOf(const imagery::Image16&) {
  return 65535;
}
constexpr double WhiteOf(const imagery::ImageFloat&) {
  return 1;
}

template <typename Value>
base::Result<SampleImage> Choose(imagery::Raster<Value> image, const model_spec::DataOptions& data,
                                 const std::string& name) {
  const int wanted = static_cast<int>(data.bands.size());
  std::vector<int> bands;
  for (const std::int64_t band : data.bands) {
    if (image.bands == 1) {
      bands.push_back(0);
      continue;
    }
    if (band > image.bands) {
      return base::Error{base::Printable(name) + " has " + std::to_string(image.bands) +
                         " bands, and data.bands asks for band " + std::to_string(band) +
                         ". Name bands that all files have, such as data.bands = [1, 1, 1]."};
    }
    bands.push_back(static_cast<int>(band) - 1);
  }
  if constexpr (std::is_same_v<Value, float>) {
    for (const float value : image.values) {
      if (std::isfinite(value)) continue;
      return base::Error{base::Printable(name) +
                         " has pixels that are no number (NaN or infinite). Write them as a number first, such as 0."};
    }
  }
  bool as_it_is = wanted == image.bands;
  for (int band = 0; band < wanted; ++band) as_it_is = as_it_is && bands[static_cast<std::size_t>(band)] == band;
  const double white = data.value_range != 0 ? data.value_range : WhiteOf(image);
  if constexpr (std::is_same_v<Value, std::uint8_t>) {
    if (white == 255 && as_it_is) return SampleImage(std::move(image));
  }
  if constexpr (std::is_same_v<Value, float>) {
    if (white == 1 && as_it_is) return SampleImage(std::move(image));
  }
  const auto fill = [&](auto& made, const auto& convert) {
    made.values.resize(static_cast<std::size_t>(image.width) * image.height * wanted);
    const Value* from = image.values.data();
    for (auto* to = made.values.data(); to != made.values.data() + made.values.size(); from += image.bands) {
      for (const int band : bands) *to++ = convert(from[band]);
    }
  };
  if constexpr (std::is_same_v<Value, std::uint8_t>) {
    if (white == 255) {
      imagery::Image8 made{image.width, image.height, wanted, {}};
      fill(made, [](std::uint8_t value) { return value; });
      return SampleImage(std::move(made));
    }
  }
  imagery::ImageFloat made{image.width, image.height, wanted, {}};
  const auto scale = static_cast<float>(1 / white);
  fill(made, [scale](Value value) { return static_cast<float>(value) * scale; });
  return SampleImage(std::move(made));
}

}  // namespace

base::Result<SampleImage> ChooseBands(imagery::AnyImage image, const model_spec::DataOptions& data,
                                      const std::string& name) {
  return std::visit([&](auto& held) { return Choose(std::move(held), data, name); }, image);
}

}  // namespace fulldeck::dataset
