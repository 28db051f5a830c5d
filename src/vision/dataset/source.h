// A split (train or val) of a data set: its samples by number, in an order that does not depend on the file system.
//
// Threads: const calls from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "imagery/files.h"
#include "imagery/image.h"

namespace fulldeck::dataset {

enum class Split { kTrain, kVal };

// Bands as the config names them: 8-bit values (0 … 255 are 0 … 1), or floats of 0 … 1. 8-bit files stay 8-bit until
// the pipeline normalises them; all others (16 bits, float, or a value_range of their own) are floats.
using SampleImage = std::variant<imagery::Image8, imagery::ImageFloat>;

// The label of pixels that count for nothing.
inline constexpr std::uint8_t kIgnored = 255;

// One decoded sample, as large as its file; labels as class numbers, after reduce_zero_label, or kIgnored.
struct Sample {
  SampleImage image;
  imagery::Mask mask;          // segmentation
  std::int64_t category = -1;  // classification
};

inline int WidthOf(const SampleImage& image) {
  return std::visit([](const auto& held) { return held.width; }, image);
}
inline int HeightOf(const SampleImage& image) {
  return std::visit([](const auto& held) { return held.height; }, image);
}

// The bands that data.bands names, in that order; a file with one band alone is gray and stands for all of them. `name`
// is the file's, for the error.
base::Result<SampleImage> ChooseBands(imagery::AnyImage image, const config::Data& data, const std::string& name);

class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t size() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;
  // An error names the file and what is wrong with it.
  virtual base::Result<Sample> Load(std::uint64_t index) const = 0;
  // What a person knows it by: the image's path below the root, or "synthetic train tile 17".
  virtual std::string Name(std::uint64_t index) const = 0;
  // Files of the sample by absolute path (image, mask), for the check of overlap; none for synthetic ones.
  virtual std::vector<std::string> Files(std::uint64_t index) const = 0;
};

// Looks the data set's files up. An error says which folder was looked for, what is there instead, and what to do:
// missing, wrong case, one level too deep or too high, images without masks, masks without images, no file with the
// suffix (and which suffixes there are), segmentation asked of data that has no masks.
base::Result<std::unique_ptr<Source>> OpenSource(const config::Data& data, Split split, std::uint64_t seed);

}  // namespace fulldeck::dataset
