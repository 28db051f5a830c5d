#include "dataset/synthetic.h"

#include <fulldeck/random.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"

namespace fulldeck::dataset {
namespace {

constexpr auto kTiles = static_cast<Purpose>(static_cast<std::uint32_t>(Purpose::kUser) + 0x74696c65);
constexpr int kPeriod = 8;
constexpr int kNoise = 15;
constexpr std::size_t kMaxRegions = 3;

enum Cover : std::uint8_t { kBackground, kBuilding, kRoad, kWater, kBarren, kForest, kAgricultural, kCovers };

// Integers only, so that CPUs with fused multiply-add make the same tiles.
struct Region {
  int x = 0, y = 0;         // the region has the points that are nearest to this one
  int right = 0, down = 0;  // phase of the pattern
  std::uint8_t cover = kBackground;
  bool bright = false;           // for the class without a pattern
  std::array<int, 3> dark = {};  // the two tones are dark and dark + contrast
  int contrast = 0;

  bool IsBright(int at_x, int at_y) const {
    const int u = at_x + right;
    const int v = at_y + down;
    const int a = u % kPeriod;
    const int b = v % kPeriod;
    switch (cover) {
      case kBuilding:
        return a < 5 && b < 6;
      case kRoad:
        return a < 2 || b < 3;
      case kWater:
        return (u + v) % kPeriod < 4;
      case kBarren:
        return (u / 4 + v / 4) % 2 == 0;
      case kForest: {  // every other row of crowns is shifted by half a crown
        const int across = 2 * ((u + v / kPeriod % 2 * 4) % kPeriod) - 7;
        const int along = 2 * b - 7;
        return across * across + along * along < 40;
      }
      case kAgricultural:
        return b < 4;
      default:
        return bright;
    }
  }
};

int Between(RandomStream& random, int low, int high) {
  return low + static_cast<int>(random.Below(static_cast<std::uint64_t>(high - low) + 1));
}

class SyntheticSource final : public Source {
 public:
  SyntheticSource(const model_spec::DataOptions& data, Split split, std::uint64_t seed,
                  std::vector<std::string> classes)
      : data_(data), split_(split), seed_(seed), classes_(std::move(classes)) {}

  std::uint64_t size() const override {
    return static_cast<std::uint64_t>(split_ == Split::kTrain ? data_.synthetic_train : data_.synthetic_val);
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string Name(std::uint64_t index) const override {
    return std::string("synthetic ") + (split_ == Split::kTrain ? "train" : "val") + " tile " + std::to_string(index);
  }
  std::vector<std::string> Files(std::uint64_t) const override { return {}; }
  base::Result<Sample> Load(std::uint64_t index) const override;

 private:
  std::vector<Region> DrawRegions(RandomStream& random) const;

  model_spec::DataOptions data_;
  Split split_;
  std::uint64_t seed_;
  std::vector<std::string> classes_;
};

std::vector<Region> SyntheticSource::DrawRegions(RandomStream& random) const {
  const int side = static_cast<int>(data_.synthetic_size);
  std::size_t count = random.Below(4) == 0 ? kMaxRegions : 2;
  if (data_.task == model_spec::Task::kClassification) count = 1;
  std::array<std::uint8_t, kCovers> covers = {};
  for (std::size_t i = 0; i < covers.size(); ++i) covers[i] = static_cast<std::uint8_t>(i);
  std::vector<Region> regions(count);
  for (std::size_t i = 0; i < count; ++i) {
    Region& region = regions[i];
    std::swap(covers[i], covers[i + random.Below(covers.size() - i)]);  // no class twice
    region.cover = covers[i];
    region.right = 4 * Between(random, 0, 1);
    region.down = 4 * Between(random, 0, 1);
    region.bright = random.Below(2) == 1;
    for (int& tone : region.dark) tone = Between(random, kNoise, 255 - kNoise - 90);
    region.contrast = Between(random, 50, 90);
  }
  // Centers too near to each other would make slivers. The limit on tries is never reached in practice.
  const auto apart = [&regions, side] {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const int x = regions[i].x - regions[j].x;
        const int y = regions[i].y - regions[j].y;
        if (4 * (x * x + y * y) < side * side) return false;
      }
    }
    return true;
  };
  for (int tries = 0; tries < 1000; ++tries) {
    for (Region& region : regions) {
      region.x = Between(random, side / 10, side - side / 10);
      region.y = Between(random, side / 10, side - side / 10);
    }
    if (apart()) break;
  }
  return regions;
}

base::Result<Sample> SyntheticSource::Load(std::uint64_t index) const {
  FULLDECK_CHECK(index < size());
  RandomStream random(seed_, kTiles, split_ == Split::kTrain ? 0 : 1, index);
  const std::vector<Region> regions = DrawRegions(random);
  const int side = static_cast<int>(data_.synthetic_size);
  imagery::Image8 image{side, side, 3, {}};
  image.values.resize(static_cast<std::size_t>(side) * side * 3);
  imagery::Mask mask{side, side, 1, {}};
  mask.values.resize(static_cast<std::size_t>(side) * side);
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const Region* here = nullptr;
      int nearest = std::numeric_limits<int>::max();
      for (const Region& region : regions) {
        const int distance = (x - region.x) * (x - region.x) + (y - region.y) * (y - region.y);
        if (distance >= nearest) continue;
        nearest = distance;
        here = &region;
      }
      const int light = here->IsBright(x, y) ? here->contrast : 0;
      const std::uint32_t noise = random.Next32();
      for (std::size_t band = 0; band < 3; ++band) {
        const int grain = static_cast<int>((noise >> (10 * band) & 0x3ff) * (2 * kNoise + 1) >> 10) - kNoise;
        image.At(x, y)[band] = static_cast<std::uint8_t>(here->dark[band] + light + grain);
      }
      *mask.At(x, y) = here->cover;
    }
  }
  Sample sample;
  if (data_.task == model_spec::Task::kClassification) {
    sample.category = regions.front().cover;
  } else {
    sample.mask = std::move(mask);
  }
  auto chosen = ChooseBands(std::move(image), data_, Name(index));
  if (!chosen) return chosen.error();
  sample.image = *std::move(chosen);
  return sample;
}

}  // namespace

base::Result<std::unique_ptr<Source>> OpenSynthetic(const model_spec::DataOptions& data, Split split,
                                                    std::uint64_t seed) {
  std::vector<std::string> classes = {"background", "building", "road", "water", "barren", "forest", "agricultural"};
  if (!data.classes.empty()) {
    if (data.classes.size() != classes.size()) {
      return base::Error{"data.classes names " + std::to_string(data.classes.size()) +
                         " classes, and the synthetic tiles have " + std::to_string(classes.size()) +
                         ". Leave data.classes out, or give as many names."};
    }
    classes = data.classes;
  }
  return std::unique_ptr<Source>(std::make_unique<SyntheticSource>(data, split, seed, std::move(classes)));
}

}  // namespace fulldeck::dataset
