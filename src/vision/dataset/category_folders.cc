#include "dataset/category_folders.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "dataset/folders.h"

namespace fulldeck::dataset {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string path;  // below the root
  std::int64_t category = 0;
};

class CategorySource final : public Source {
 public:
  CategorySource(const model_spec::DataOptions& data, std::vector<File> files, std::vector<std::string> classes)
      : data_(data), files_(std::move(files)), classes_(std::move(classes)) {}

  std::uint64_t size() const override { return files_.size(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string Name(std::uint64_t index) const override { return files_[index].path; }
  std::vector<std::string> Files(std::uint64_t index) const override {
    return {(fs::path(data_.root) / files_[index].path).string()};
  }
  base::Result<Sample> Load(std::uint64_t index) const override {
    FULLDECK_CHECK(index < size());
    const std::string path = Files(index).front();
    auto image = imagery::ReadImage(path);
    if (!image) return image.error();
    auto chosen = ChooseBands(*std::move(image), data_, path);
    if (!chosen) return chosen.error();
    Sample sample;
    sample.image = *std::move(chosen);
    sample.category = files_[index].category;
    return sample;
  }

 private:
  model_spec::DataOptions data_;
  std::vector<File> files_;
  std::vector<std::string> classes_;
};

// One set: a folder below the root that contains the splits.
struct Set {
  std::string prefix;  // of its categories' names
  std::string train, val;
};

// Categories by name, with their folders below the root.
std::map<std::string, std::string> CategoriesOf(const model_spec::DataOptions& data, const std::vector<Set>& sets,
                                                Split split) {
  std::map<std::string, std::string> categories;
  for (const Set& set : sets) {
    const std::string& folder = split == Split::kTrain ? set.train : set.val;
    for (const std::string& name : FoldersIn((fs::path(data.root) / folder).string()))
      categories[set.prefix + name] = (fs::path(folder) / name).string();
  }
  return categories;
}

base::Result<std::unique_ptr<Source>> Open(const model_spec::DataOptions& data, const std::vector<Set>& sets,
                                           Split split) {
  for (const Set& set : sets) {
    // The train split defines the categories, so it is also read for val.
    for (const std::string& folder : {set.train, split == Split::kTrain ? set.train : set.val}) {
      if (auto there = ExpectFolder(data.root, folder); !there) return there.error();
      const std::string path = (fs::path(data.root) / folder).string();
      if (FoldersIn(path).empty()) {
        return base::Error{"The folder " + base::Printable(path) +
                           " has no folders in it. Images lie in one folder for each category."};
      }
    }
  }
  std::vector<std::string> classes = data.classes;
  if (classes.empty()) {
    for (const auto& [name, folder] : CategoriesOf(data, sets, Split::kTrain)) classes.push_back(name);
  }
  const auto categories = CategoriesOf(data, sets, split);
  std::vector<std::string> unknown;
  for (const auto& [name, folder] : categories) {
    if (std::find(classes.begin(), classes.end(), name) == classes.end()) unknown.push_back(name);
  }
  if (!unknown.empty()) {
    return base::Error{
        std::string("Folders of ") + (split == Split::kTrain ? "train" : "val") + " are no class: " + FewOf(unknown) +
        ". " + (data.classes.empty() ? "Train has no folders of these names." : "data.classes does not name them.")};
  }
  std::vector<File> files;
  std::vector<std::string> empty;
  for (std::size_t category = 0; category < classes.size(); ++category) {
    const auto folder = categories.find(classes[category]);
    if (folder == categories.end()) {
      empty.push_back(classes[category]);
      continue;
    }
    auto found = FilesBelow((fs::path(data.root) / folder->second).string(), "");
    if (!found) return found.error();
    for (const std::string& file : *found)
      files.push_back({(fs::path(folder->second) / file).string(), static_cast<std::int64_t>(category)});
  }
  if (split == Split::kTrain && !empty.empty()) {
    return base::Error{"Classes of data.classes have no folder in train: " + FewOf(empty) + ". The folders are " +
                       FewOf(FoldersIn((fs::path(data.root) / sets.front().train).string())) + "."};
  }
  return std::unique_ptr<Source>(std::make_unique<CategorySource>(data, std::move(files), std::move(classes)));
}

base::Result<void> ExpectClassification(const model_spec::DataOptions& data, const std::string& what) {
  if (data.task == model_spec::Task::kClassification) return {};
  return base::Error{"data.task is \"segmentation\", and " + what +
                     " has no masks. Set data.task = \"classification\", or train on "
                     "data with masks (data.kind = \"mmseg\" or \"loveda\")."};
}

}  // namespace

base::Result<std::unique_ptr<Source>> OpenCategories(const model_spec::DataOptions& data, Split split) {
  if (auto task = ExpectClassification(data, "data of folders of categories"); !task) return task.error();
  return Open(data, {{"", data.train, data.val}}, split);
}

base::Result<std::unique_ptr<Source>> OpenMmrs1m(const model_spec::DataOptions& data, Split split) {
  if (auto task = ExpectClassification(data, "MMRS-1M"); !task) return task.error();
  const std::string top = "classification";
  if (auto there = ExpectFolder(data.root, top); !there) return there.error();
  std::vector<std::string> names = data.sets;
  if (names.empty()) {
    names = FoldersIn((fs::path(data.root) / top).string());
    if (names.empty())
      return base::Error{"The folder " + base::Printable((fs::path(data.root) / top).string()) + " has no sets in it."};
    if (names.size() > 1) {
      return base::Error{"There are several sets in " + base::Printable((fs::path(data.root) / top).string()) + ": " +
                         FewOf(names) + ". Name those to train on, such as data.sets = [\"" +
                         base::Printable(names.front()) + "\"]."};
    }
  }
  std::vector<Set> sets;
  for (const std::string& name : names) {
    const fs::path folder = fs::path(top) / name;
    if (auto there = ExpectFolder(data.root, folder.string()); !there) return there.error();
    Set set{names.size() > 1 ? name + "/" : "", (folder / data.train).string(), (folder / data.val).string()};
    // "val" is the config's default; the sets of MMRS-1M call it "test".
    const fs::path root = data.root;
    if (data.val == "val" && !IsFolder((root / set.val).string()) && IsFolder((root / folder / "test").string()))
      set.val = (folder / "test").string();
    sets.push_back(std::move(set));
  }
  return Open(data, sets, split);
}

}  // namespace fulldeck::dataset
