// A split (train or val) of a dataset: its samples by number, in an order that does not depend on the file system.
//
// Threads: const methods may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "imagery/files.h"
#include "imagery/image.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

enum class Split { kTrain, kVal };

// The bands that the config selects: 8-bit values (0 … 255 stand for 0 … 1), or floats in 0 … 1. 8-bit files stay 8-bit
// until the pipeline normalizes them; all others (16 bits, float, or with their own value_range) are floats.
using SampleImage = std::variant<imagery::Image8, imagery::ImageFloat>;

// The label of pixels that do not count in the loss and the metrics.
inline constexpr std::uint8_t kIgnored = 255;

// One decoded sample at the size of its file. Labels are class numbers after reduce_zero_label, or kIgnored.
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

// The bands that data.bands selects, in that order. A file with a single band is gray and is used for every selected
// band. `name` is the file's name, for the error.
base::Result<SampleImage> ChooseBands(imagery::AnyImage image, const model_spec::DataOptions& data,
                                      const std::string& name);

class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t size() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;
  // An error names the file and the problem.
  virtual base::Result<Sample> Load(std::uint64_t index) const = 0;
  // The name of the sample in messages: the image's path below the root, or "synthetic train tile 17".
  virtual std::string Name(std::uint64_t index) const = 0;
  // Absolute paths of the sample's files (image, mask), for the overlap check; none for synthetic samples.
  virtual std::vector<std::string> Files(std::uint64_t index) const = 0;
};

// Lists the files of the dataset. An error reports which folder was expected, what exists instead, and the fix:
// missing, wrong case, one level too deep or too high, images without masks, masks without images, no file with the
// suffix (and which suffixes exist), segmentation with data that has no masks.
base::Result<std::unique_ptr<Source>> OpenSource(const model_spec::DataOptions& data, Split split, std::uint64_t seed);

}  // namespace fulldeck::dataset
