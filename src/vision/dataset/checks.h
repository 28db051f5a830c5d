// Checks that the data is what the config says, before the first step. Each finding says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "dataset/source.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

// Statistics of a few samples of a split.
struct LabelSurvey {
  std::uint64_t samples = 0;
  std::vector<std::uint64_t> counts;        // 256, by label after reduce_zero_label; classification: by category
  std::uint64_t constant_images = 0;        // all pixels have the same value
  std::vector<std::string> constant_names;  // the first few
};

// Reads at most `most` samples, spread evenly over the split, with `threads` threads. Skips corrupt files.
LabelSurvey SurveyLabels(const Source& source, std::uint64_t most, int threads);

// Everything that is wrong with the split: labels out of range (including a missing reduce_zero_label or LoveDA's shift
// of labels), only one class, only ignored pixels, constant images. Empty: no problems.
std::vector<std::string> ProblemsOf(const LabelSurvey& survey, const model_spec::DataOptions& data,
                                    const std::vector<std::string>& classes, Split split);

// Files that are in both splits: the same path, the same inode, or, for up to `most_hashed` files per split, the same
// content. Empty: none.
std::vector<std::string> OverlapOf(const Source& train, const Source& val, std::uint64_t most_hashed);

}  // namespace fulldeck::dataset
