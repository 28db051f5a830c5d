#include "dataset/checks.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/text.h"

namespace fulldeck::dataset {
namespace {

constexpr std::size_t kNames = 5;
constexpr std::size_t kLabels = 256;
constexpr double kConstantShare = 0.1;

const char* SplitName(Split split) {
  return split == Split::kTrain ? "train" : "val";
}

// `count` positions in 0 … size − 1, evenly spread, including the first and the last.
std::vector<std::uint64_t> Spread(std::uint64_t size, std::uint64_t count) {
  count = std::min(size, count);
  std::vector<std::uint64_t> positions;
  for (std::uint64_t i = 0; i < count; ++i) positions.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
  return positions;
}

template <typename Value>
bool AllPixelsEqual(const imagery::Raster<Value>& image) {
  for (std::size_t i = static_cast<std::size_t>(image.bands); i < image.values.size(); ++i) {
    if (image.values[i] != image.values[i - static_cast<std::size_t>(image.bands)]) return false;
  }
  return true;
}

std::string Named(std::size_t label, const std::vector<std::string>& classes) {
  return std::to_string(label) + (label < classes.size() ? " (" + base::Printable(classes[label]) + ")" : "");
}

// "a, b, c and 4 more".
std::string FewOf(const std::vector<std::string>& names, std::uint64_t all) {
  std::vector<std::string> printed;
  for (const std::string& name : names) printed.push_back(base::Printable(name));
  std::string text = base::Join(printed, ", ");
  if (all > names.size()) text += " and " + std::to_string(all - names.size()) + " more";
  return text;
}

std::uint64_t ContentSum(const std::string& path) {
  base::Hash hash;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(1 << 16);
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    hash.Add(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  return hash.Sum();
}

}  // namespace

LabelSurvey SurveyLabels(const Source& source, std::uint64_t most, int threads) {
  const std::vector<std::uint64_t> positions = Spread(source.size(), most);
  const std::size_t labels = std::max(kLabels, source.classes().size());
  struct Found {
    LabelSurvey survey;
    std::map<std::uint64_t, std::string> constant;  // by index, so that the names do not depend on the threads
  };
  std::vector<Found> found(static_cast<std::size_t>(std::max(1, threads)));
  std::atomic<std::size_t> next{0};  // only a counter: publishes no other data
  const auto survey_samples = [&](Found& mine) {
    mine.survey.counts.assign(labels, 0);
    while (true) {
      const std::size_t place = next.fetch_add(1, std::memory_order_relaxed);
      if (place >= positions.size()) return;
      const base::Result<Sample> sample = source.Load(positions[place]);
      if (!sample) continue;
      ++mine.survey.samples;
      for (const std::uint8_t label : sample->mask.values) ++mine.survey.counts[label];
      if (sample->category >= 0) ++mine.survey.counts[static_cast<std::size_t>(sample->category)];
      if (std::visit([](const auto& image) { return AllPixelsEqual(image); }, sample->image))
        mine.constant[positions[place]] = source.Name(positions[place]);
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < found.size(); ++i) {
    others.emplace_back([&survey_samples, &mine = found[i]] {
      pthread_setname_np(pthread_self(), "fulldeck-data");
      survey_samples(mine);
    });
  }
  survey_samples(found.front());
  for (std::thread& other : others) other.join();

  LabelSurvey survey;
  survey.counts.assign(labels, 0);
  std::map<std::uint64_t, std::string> constant;
  for (const Found& one : found) {
    survey.samples += one.survey.samples;
    for (std::size_t label = 0; label < labels; ++label) survey.counts[label] += one.survey.counts[label];
    constant.insert(one.constant.begin(), one.constant.end());
  }
  survey.constant_images = constant.size();
  for (const auto& [index, name] : constant) {
    if (survey.constant_names.size() < kNames) survey.constant_names.push_back(name);
  }
  return survey;
}

std::vector<std::string> ProblemsOf(const LabelSurvey& survey, const model_spec::DataOptions& data,
                                    const std::vector<std::string>& classes, Split split) {
  std::vector<std::string> problems;
  const std::string of_split = std::string(" of ") + SplitName(split);
  if (survey.samples == 0) {
    problems.push_back("No sample" + of_split + " could be read. Look at the first file by hand, and at data.root.");
    return problems;
  }
  const bool segmentation = data.task == model_spec::Task::kSegmentation;
  const std::string surveyed = base::Counted(survey.samples, "sample") + of_split;
  std::uint64_t labeled = 0;
  std::vector<std::size_t> seen;
  std::vector<std::size_t> outside;
  for (std::size_t label = 0; label < survey.counts.size(); ++label) {
    if (survey.counts[label] == 0 || (segmentation && label == 255)) continue;
    labeled += survey.counts[label];
    (label < classes.size() ? seen : outside).push_back(label);
  }
  if (labeled == 0) {
    std::string problem = "Every pixel of the masks of " + surveyed + " is ignored: there is nothing to learn.";
    problem += data.reduce_zero_label
                   ? " The masks have 0 everywhere, which data.reduce_zero_label ignores. Masks that count "
                     "their classes from 0 need data.reduce_zero_label = false."
                   : " Labels are class numbers from 0; " + std::to_string(data.ignore_label) +
                         " stands for ignored. Look at a mask by hand.";
    problems.push_back(problem);
    return problems;
  }
  if (!outside.empty()) {
    std::string problem = "Labels of " + surveyed + " are out of range: " + std::to_string(outside.front());
    if (outside.size() > 1) problem += " … " + std::to_string(outside.back());
    problem +=
        ", with " + std::to_string(classes.size()) + " classes (0 … " + std::to_string(classes.size() - 1) + ").";
    const bool shifted = data.kind == model_spec::DataKind::kLoveda || data.reduce_zero_label;
    if (!shifted && outside.size() == 1 && outside.front() == classes.size()) {
      problem +=
          " Masks that count from 1 and have 0 where nothing is known, as LoveDA's, need data.kind = \"loveda\" or "
          "data.reduce_zero_label = true.";
    } else {
      problem += " Name all classes in data.classes, or write masks with class numbers; colours are no labels.";
    }
    problems.push_back(problem);
  }
  if (seen.size() + outside.size() == 1 && classes.size() > 1) {
    const std::size_t only = seen.empty() ? outside.front() : seen.front();
    std::string problem = "All labels of " + surveyed + " are the same: " + Named(only, classes) +
                          ". A model would learn to say that alone.";
    if (segmentation && survey.counts[255] > 0) {
      problem += " Label 255 counts as ignored: masks of two classes are written with 0 and 1, not with 0 and 255.";
    } else {
      problem +=
          segmentation ? " Look at a mask by hand: was it written with zeros?" : " Are all images in one folder?";
    }
    problems.push_back(problem);
  }
  if (static_cast<double>(survey.constant_images) > kConstantShare * static_cast<double>(survey.samples)) {
    problems.push_back(std::to_string(survey.constant_images) + " of " + surveyed +
                       (survey.constant_images == 1 ? " has" : " have") +
                       " one value in all their pixels: " + FewOf(survey.constant_names, survey.constant_images) +
                       ". Look at these files; with data.bands or data.value_range wrong, images turn black or white.");
  }
  return problems;
}

std::vector<std::string> OverlapOf(const Source& train, const Source& val, std::uint64_t most_hashed) {
  struct Known {
    std::map<std::pair<dev_t, ino_t>, std::uint64_t> inodes;
    std::unordered_map<std::int64_t, std::vector<std::uint64_t>> sizes;
  } known;
  const auto image_of = [](const Source& source, std::uint64_t index) {
    const std::vector<std::string> files = source.Files(index);
    return files.empty() ? std::string() : files.front();
  };
  struct stat status = {};
  for (std::uint64_t index = 0; index < train.size(); ++index) {
    const std::string path = image_of(train, index);
    if (path.empty() || stat(path.c_str(), &status) != 0) continue;
    known.inodes.emplace(std::make_pair(status.st_dev, status.st_ino), index);
    known.sizes[status.st_size].push_back(index);
  }
  std::vector<std::string> same_file;
  std::vector<std::string> same_content;
  std::uint64_t same_files = 0;
  std::uint64_t same_contents = 0;
  std::uint64_t hashed = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> sums;  // of train, by index
  for (std::uint64_t index = 0; index < val.size(); ++index) {
    const std::string path = image_of(val, index);
    if (path.empty() || stat(path.c_str(), &status) != 0) continue;
    if (known.inodes.count({status.st_dev, status.st_ino}) != 0) {
      ++same_files;
      if (same_file.size() < kNames) same_file.push_back(val.Name(index));
      continue;
    }
    // Files of the same size are rare enough to be hashed; if all files have the same size, only some are hashed.
    const auto candidates = known.sizes.find(status.st_size);
    if (candidates == known.sizes.end() || status.st_size == 0 || hashed >= most_hashed) continue;
    ++hashed;
    const std::uint64_t sum = ContentSum(path);
    for (const std::uint64_t other : candidates->second) {
      auto place = sums.find(other);
      if (place == sums.end()) {
        if (sums.size() >= most_hashed) break;
        place = sums.emplace(other, ContentSum(image_of(train, other))).first;
      }
      if (place->second != sum) continue;
      ++same_contents;
      if (same_content.size() < kNames) same_content.push_back(val.Name(index) + " = " + train.Name(other));
      break;
    }
  }
  std::vector<std::string> problems;
  const std::string fix =
      ". A score on what was trained on says nothing. Take them out of one part, or set "
      "data.overlap_allowed = true.";
  if (same_files > 0) {
    problems.push_back(
        std::to_string(same_files) + " of the " + std::to_string(val.size()) +
        (same_files == 1 ? " files of val is a file of train too: " : " files of val are files of train too: ") +
        FewOf(same_file, same_files) + fix);
  }
  if (same_contents > 0) {
    problems.push_back(base::Counted(same_contents, "file") + " of val " + (same_contents == 1 ? "has" : "have") +
                       " the same content as one of train: " + FewOf(same_content, same_contents) + fix);
  }
  return problems;
}

}  // namespace fulldeck::dataset
