#include "predict/result_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/text.h"

namespace fulldeck::predict {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSampledValues = 100000;  // values of a band, for its percentiles

// Maps the values of one band to 0 … 255.
struct Stretch {
  double black = 0;
  double white = 1;
  std::uint8_t operator()(double value) const {
    // NaN, a possible "no data" value, is black.
    const double share = (value - black) / (white - black);
    return share > 0 ? static_cast<std::uint8_t>(std::lround(255 * std::min(share, 1.0))) : 0;
  }
};

Stretch StretchOf(const imagery::ImageFloat& image, int band) {
  const std::size_t pixels = static_cast<std::size_t>(image.width) * image.height;
  const std::size_t distance = std::max<std::size_t>(pixels / kMaxSampledValues, 1);
  std::vector<float> values;
  for (std::size_t i = 0; i < pixels; i += distance) {
    const float value = image.values[i * image.bands + band];
    if (std::isfinite(value)) values.push_back(value);
  }
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return static_cast<double>(*place);
  };
  Stretch stretch{at(0.02), at(0.98)};
  if (!(stretch.white > stretch.black)) stretch.white = stretch.black + 1;
  return stretch;
}

// Converts to three bands of 8 bits.
template <typename Value, typename Convert>
imagery::Image8 Shown(const imagery::Raster<Value>& image, const Convert& convert) {
  imagery::Image8 shown{image.width, image.height, 3, {}};
  shown.values.resize(static_cast<std::size_t>(image.width) * image.height * 3);
  std::uint8_t* to = shown.values.data();
  const std::size_t pixels = static_cast<std::size_t>(image.width) * image.height;
  for (std::size_t i = 0; i < pixels; ++i) {
    const Value* from = image.values.data() + i * image.bands;
    for (int band = 0; band < 3; ++band) {
      const int source = image.bands >= 3 ? band : 0;
      *to++ = convert(source, from[source]);
    }
  }
  return shown;
}

}  // namespace

base::Result<ResultFiles> ResultNames::For(const std::string& image, bool is_tiff) {
  const std::string stem = fs::path(image).stem().string();
  std::string name = stem;
  for (int i = 2; !taken_.insert(name).second; ++i) name = stem + "-" + std::to_string(i);
  const std::string begin = (fs::path(folder_) / name).lexically_normal().string();
  ResultFiles files{begin + "_mask.png", begin + "_overlay.png", std::nullopt};
  if (is_tiff) files.tiff = begin + "_mask.tif";
  for (const std::string& result : {files.mask, files.overlay, files.tiff.value_or("")}) {
    for (const std::string& other : images_) {
      std::error_code ignored;
      if (!result.empty() && fs::equivalent(result, other, ignored)) {
        return base::Error{"the result for " + base::Printable(image) + " would overwrite the image " +
                           base::Printable(other) + ". Choose another folder with --output."};
      }
    }
  }
  return files;
}

imagery::Image8 Overlay(const dataset::SampleImage& image, const imagery::Mask& mask,
                        const std::vector<report::LegendEntry>& palette) {
  imagery::Image8 overlay;
  if (const auto* bytes = std::get_if<imagery::Image8>(&image)) {
    overlay = Shown(*bytes, [](int, std::uint8_t value) { return value; });
  } else {
    const auto& floats = std::get<imagery::ImageFloat>(image);
    std::vector<Stretch> stretches;
    for (int band = 0; band < std::min(floats.bands, 3); ++band) stretches.push_back(StretchOf(floats, band));
    overlay = Shown(floats, [&](int band, float value) { return stretches[static_cast<std::size_t>(band)](value); });
  }
  FULLDECK_CHECK(mask.values.size() * 3 == overlay.values.size());
  for (std::size_t i = 0; i < mask.values.size(); ++i) {
    const report::LegendEntry& color = palette[mask.values[i]];
    std::uint8_t* pixel = overlay.values.data() + 3 * i;
    pixel[0] = static_cast<std::uint8_t>((pixel[0] + color.red + 1) / 2);
    pixel[1] = static_cast<std::uint8_t>((pixel[1] + color.green + 1) / 2);
    pixel[2] = static_cast<std::uint8_t>((pixel[2] + color.blue + 1) / 2);
  }
  return overlay;
}

base::Result<void> WriteResults(const ResultFiles& files, const dataset::SampleImage& image, const imagery::Mask& mask,
                                const std::vector<report::LegendEntry>& palette, const imagery::GeoTags& tags) {
  std::vector<imagery::Color> colors;
  for (const report::LegendEntry& entry : palette) colors.push_back({entry.red, entry.green, entry.blue});
  if (auto written = imagery::WritePng(files.mask, mask, colors); !written) return written;
  if (auto written = imagery::WritePng(files.overlay, Overlay(image, mask, palette)); !written) return written;
  return files.tiff ? imagery::WriteTiff(*files.tiff, mask, colors, tags) : base::Result<void>();
}

}  // namespace fulldeck::predict
