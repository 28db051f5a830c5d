#include "report/palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

namespace fulldeck::report {
namespace {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Rgb&) const = default;
};

struct Known {
  const char* name;
  Rgb color;
};

// Close to the colors of LoveDA and the ISPRS datasets.
constexpr Known kKnown[] = {
    {"background", {255, 255, 255}},
    {"clutter", {255, 255, 255}},
    {"building", {220, 40, 40}},
    {"buildings", {220, 40, 40}},
    {"road", {128, 128, 128}},
    {"roads", {128, 128, 128}},
    {"impervious surface", {128, 128, 128}},
    {"impervious surfaces", {128, 128, 128}},
    {"water", {30, 100, 220}},
    {"river", {30, 100, 220}},
    {"lake", {90, 160, 240}},
    {"barren", {159, 110, 60}},
    {"bare land", {159, 110, 60}},
    {"bare soil", {159, 110, 60}},
    {"forest", {20, 120, 50}},
    {"tree", {20, 120, 50}},
    {"trees", {20, 120, 50}},
    {"agricultural", {250, 205, 60}},
    {"agriculture", {250, 205, 60}},
    {"farmland", {250, 205, 60}},
    {"cropland", {250, 205, 60}},
    {"grass", {140, 200, 80}},
    {"grassland", {140, 200, 80}},
    {"low vegetation", {140, 200, 80}},
    {"vegetation", {90, 170, 70}},
    {"car", {255, 140, 0}},
    {"vehicle", {255, 140, 0}},
    {"ship", {0, 170, 170}},
};

// "Low_Vegetation" and "low vegetation" are the same class.
std::string Plain(const std::string& name) {
  std::string plain;
  for (const char letter : name) {
    if (letter == '_' || letter == '-') {
      plain += ' ';
    } else {
      plain += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    }
  }
  return plain;
}

std::optional<Rgb> ColorOf(const std::string& name) {
  const std::string plain = Plain(name);
  for (const Known& known : kKnown) {
    if (plain == known.name) return known.color;
  }
  return std::nullopt;
}

Rgb FromHue(double hue, double saturation, double value) {
  const double sector = hue * 6;
  const double chroma = value * saturation;
  const double second = chroma * (1 - std::abs(std::fmod(sector, 2.0) - 1));
  const double low = value - chroma;
  const std::array<std::array<double, 3>, 6> sides = {{{chroma, second, 0},
                                                       {second, chroma, 0},
                                                       {0, chroma, second},
                                                       {0, second, chroma},
                                                       {second, 0, chroma},
                                                       {chroma, 0, second}}};
  const auto& side = sides[static_cast<std::size_t>(sector) % 6];
  const auto byte = [&](double part) { return static_cast<std::uint8_t>(std::lround(255 * (part + low))); };
  return {byte(side[0]), byte(side[1]), byte(side[2])};
}

// Hues advance by the golden ratio, so that consecutive numbers get very different colors.
Rgb Distinct(std::size_t number) {
  constexpr double kGoldenRatio = 0.6180339887498949;
  const double hue = std::fmod(0.58 + static_cast<double>(number) * kGoldenRatio, 1.0);
  constexpr std::array<std::array<double, 2>, 5> kShades = {
      {{0.75, 0.85}, {0.55, 0.6}, {0.4, 0.95}, {0.85, 0.5}, {0.3, 0.75}}};
  const auto& shade = kShades[number / 8 % kShades.size()];
  return FromHue(hue, shade[0], shade[1]);
}

bool Near(const Rgb& a, const Rgb& b, int distance) {
  return std::abs(a.red - b.red) + std::abs(a.green - b.green) + std::abs(a.blue - b.blue) < distance;
}

// A color that is far from those in use, or less far if there are very many.
Rgb Free(const std::vector<Rgb>& taken, std::size_t& next) {
  Rgb color;
  for (const int distance : {24, 8, 1}) {
    for (int tries = 0; tries < 1000; ++tries) {
      color = Distinct(next++);
      if (std::none_of(taken.begin(), taken.end(), [&](const Rgb& other) { return Near(color, other, distance); }))
        return color;
    }
  }
  return color;
}

}  // namespace

std::vector<LegendEntry> PaletteOf(const std::vector<std::string>& classes) {
  std::vector<std::optional<Rgb>> colors;
  std::vector<Rgb> taken;
  for (const std::string& name : classes) {
    std::optional<Rgb> color = ColorOf(name);
    // "river" and "water" in one list: the second gets a different color.
    if (color && std::find(taken.begin(), taken.end(), *color) != taken.end()) color.reset();
    if (color) taken.push_back(*color);
    colors.push_back(color);
  }
  std::vector<LegendEntry> palette;
  std::size_t next = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (!colors[i]) {
      colors[i] = Free(taken, next);
      taken.push_back(*colors[i]);
    }
    palette.push_back({classes[i], colors[i]->red, colors[i]->green, colors[i]->blue});
  }
  return palette;
}

}  // namespace fulldeck::report
