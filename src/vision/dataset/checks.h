// Is this data what its person thinks it is? Looked at before a step is trained; each finding says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "dataset/source.h"

namespace fulldeck::dataset {

// A few of the samples, read.
struct LabelSurvey {
  std::uint64_t samples = 0;
  std::vector<std::uint64_t>
      counts;  // 256, of the labels as they are after reduce_zero_label; classification: by category
  std::uint64_t constant_images = 0;        // with one value in all their pixels
  std::vector<std::string> constant_names;  // the first few
};

// At most `most` samples, spread evenly over the split; reads with `threads` threads. Corrupt files are skipped here.
LabelSurvey SurveyLabels(const Source& source, std::uint64_t most, int threads);

// Everything that is wrong with it: labels out of range (and whether reduce_zero_label or loveda's shift was
// forgotten), one class alone, nothing but ignored pixels, images that are constant. Empty: nothing.
std::vector<std::string> ProblemsOf(const LabelSurvey& survey, const config::Data& data,
                                    const std::vector<std::string>& classes, Split split);

// The same files (by path, by inode, or, for up to `most_hashed` of each split, by content) in both parts. Empty: none.
std::vector<std::string> OverlapOf(const Source& train, const Source& val, std::uint64_t most_hashed);

}  // namespace fulldeck::dataset
