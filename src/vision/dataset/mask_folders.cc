#include "dataset/mask_folders.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "dataset/folders.h"

namespace fulldeck::dataset {
namespace {

namespace fs = std::filesystem;

struct Pair {
  std::string image, mask;  // below the root
};

class MaskSource final : public Source {
 public:
  MaskSource(const model_spec::DataOptions& data, std::vector<Pair> pairs, std::vector<std::string> classes,
             bool reduce_zero)
      : data_(data), pairs_(std::move(pairs)), classes_(std::move(classes)) {
    for (std::size_t stored = 0; stored < labels_.size(); ++stored) {
      std::size_t label = stored;
      if (reduce_zero) label = stored == 0 || stored == 255 ? 255 : stored - 1;
      if (static_cast<std::int64_t>(label) == data_.ignore_label) label = 255;
      labels_[stored] = static_cast<std::uint8_t>(label);
      changes_labels_ = changes_labels_ || label != stored;
    }
  }

  std::uint64_t size() const override { return pairs_.size(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string Name(std::uint64_t index) const override { return pairs_[index].image; }
  std::vector<std::string> Files(std::uint64_t index) const override {
    return {At(pairs_[index].image), At(pairs_[index].mask)};
  }
  base::Result<Sample> Load(std::uint64_t index) const override {
    FULLDECK_CHECK(index < size());
    const Pair& pair = pairs_[index];
    auto image = imagery::ReadImage(At(pair.image));
    if (!image) return image.error();
    auto chosen = ChooseBands(*std::move(image), data_, At(pair.image));
    if (!chosen) return chosen.error();
    auto mask = imagery::ReadMask(At(pair.mask));
    if (!mask) return mask.error();
    Sample sample;
    sample.image = *std::move(chosen);
    sample.mask = *std::move(mask);
    if (sample.mask.width != WidthOf(sample.image) || sample.mask.height != HeightOf(sample.image)) {
      const auto size = [](int width, int height) { return std::to_string(width) + " × " + std::to_string(height); };
      return base::Error{"the mask " + base::Printable(At(pair.mask)) + " has " +
                         size(sample.mask.width, sample.mask.height) + " pixels, and its image " +
                         base::Printable(At(pair.image)) + " has " +
                         size(WidthOf(sample.image), HeightOf(sample.image)) + ". They must be of one size."};
    }
    if (changes_labels_) {
      for (std::uint8_t& label : sample.mask.values) label = labels_[label];
    }
    return sample;
  }

 private:
  std::string At(const std::string& below) const { return (fs::path(data_.root) / below).string(); }

  model_spec::DataOptions data_;
  std::vector<Pair> pairs_;
  std::vector<std::string> classes_;
  std::array<std::uint8_t, 256> labels_ = {};
  bool changes_labels_ = false;
};

base::Result<void> ExpectSegmentation(const model_spec::DataOptions& data) {
  if (data.task == model_spec::Task::kSegmentation) return {};
  return base::Error{
      "data.task is \"classification\", and this kind of data has masks and no categories. Set data.task = "
      "\"segmentation\", or data.kind = \"folders\" for images in folders of categories."};
}

// Images and masks whose names are equal without their suffixes, in two folders below the root.
base::Result<std::vector<Pair>> PairsOf(const model_spec::DataOptions& data, const std::string& image_dir,
                                        const std::string& mask_dir) {
  for (const std::string& folder : {image_dir, mask_dir}) {
    if (auto there = ExpectFolder(data.root, folder); !there) return there.error();
  }
  const auto stems = [&data](const std::string& folder,
                             const std::string& suffix) -> base::Result<std::vector<std::string>> {
    auto files = FilesBelow((fs::path(data.root) / folder).string(), suffix);
    if (!files) return files;
    for (std::string& file : *files) file.resize(file.size() - suffix.size());
    std::sort(files->begin(), files->end());
    return files;
  };
  const auto images = stems(image_dir, data.image_suffix);
  if (!images) return images.error();
  const auto masks = stems(mask_dir, data.mask_suffix);
  if (!masks) return masks.error();
  const auto only_in = [](const std::vector<std::string>& some, const std::vector<std::string>& others,
                          const std::string& suffix) {
    std::vector<std::string> alone;
    std::set_difference(some.begin(), some.end(), others.begin(), others.end(), std::back_inserter(alone));
    for (std::string& name : alone) name += suffix;
    return alone;
  };
  const std::vector<std::string> unlabeled = only_in(*images, *masks, data.image_suffix);
  const std::vector<std::string> unseen = only_in(*masks, *images, data.mask_suffix);
  const auto below = [&data](const std::string& folder) {
    return base::Printable((fs::path(data.root) / folder).string());
  };
  if (!unlabeled.empty()) {
    return base::Error{std::to_string(unlabeled.size()) + " of " + std::to_string(images->size()) + " images in " +
                       below(image_dir) + " have no mask in " + below(mask_dir) + ": " + FewOf(unlabeled) +
                       ". A mask has its image's name, with " + base::Printable(data.mask_suffix) + " in place of " +
                       base::Printable(data.image_suffix) + " (data.mask_suffix). Add the masks or remove the images."};
  }
  if (!unseen.empty()) {
    return base::Error{std::to_string(unseen.size()) + " of " + std::to_string(masks->size()) + " masks in " +
                       below(mask_dir) + " have no image in " + below(image_dir) + ": " + FewOf(unseen) +
                       ". Add the images or remove the masks."};
  }
  std::vector<Pair> pairs;
  for (const std::string& stem : *images) {
    pairs.push_back({(fs::path(image_dir) / (stem + data.image_suffix)).string(),
                     (fs::path(mask_dir) / (stem + data.mask_suffix)).string()});
  }
  return pairs;
}

}  // namespace

base::Result<std::unique_ptr<Source>> OpenMmseg(const model_spec::DataOptions& data, Split split) {
  if (auto task = ExpectSegmentation(data); !task) return task.error();
  if (data.classes.empty()) {
    return base::Error{"data.classes is empty. Name the classes of the masks, in the order of their numbers."};
  }
  const std::string& name = split == Split::kTrain ? data.train : data.val;
  auto pairs = PairsOf(data, (fs::path(data.image_dir) / name).string(), (fs::path(data.mask_dir) / name).string());
  if (!pairs) return pairs.error();
  return std::unique_ptr<Source>(
      std::make_unique<MaskSource>(data, *std::move(pairs), data.classes, data.reduce_zero_label));
}

base::Result<std::unique_ptr<Source>> OpenLoveda(const model_spec::DataOptions& data, Split split) {
  if (auto task = ExpectSegmentation(data); !task) return task.error();
  std::vector<std::string> classes = data.classes;
  if (classes.empty()) classes = {"background", "building", "road", "water", "barren", "forest", "agricultural"};
  std::string name = split == Split::kTrain ? data.train : data.val;
  // The config's default names are those of other datasets.
  if (name == "train") name = "Train";
  if (name == "val") name = "Val";
  if (auto there = ExpectFolder(data.root, name); !there) return there.error();
  std::vector<Pair> pairs;
  bool any = false;
  for (const char* scene : {"Rural", "Urban"}) {
    const fs::path folder = fs::path(name) / scene;
    if (!IsFolder((fs::path(data.root) / folder).string())) continue;
    any = true;
    auto found = PairsOf(data, (folder / "images_png").string(), (folder / "masks_png").string());
    if (!found) return found.error();
    pairs.insert(pairs.end(), found->begin(), found->end());
  }
  if (!any) return ExpectFolder(data.root, (fs::path(name) / "Rural").string()).error();
  return std::unique_ptr<Source>(std::make_unique<MaskSource>(data, std::move(pairs), std::move(classes), true));
}

}  // namespace fulldeck::dataset
