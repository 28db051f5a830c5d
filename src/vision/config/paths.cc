#include "config/paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "config/job_folder.h"
#include "config/keys.h"

namespace fulldeck::config {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListed = 8;
constexpr std::size_t kMaxEntries = 1000;  // entries per folder

std::string Shown(const fs::path& path) {
  return base::Printable(path.string());
}

std::string LowerCase(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Names in a folder, sorted; only the first ones of a large folder.
std::vector<std::string> NamesIn(const fs::path& folder, bool folders_alone) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && names.size() < kMaxEntries;
       entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || (folders_alone && !entry->is_directory(ignored))) continue;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "there are a, b, c and 12 more"
std::string Listed(const std::vector<std::string>& names) {
  if (names.empty()) return "it is empty";
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) shown.push_back(base::Printable(names[i]));
  const std::size_t more = names.size() - shown.size();
  return fmt::format("there {} {}{}", names.size() == 1 ? "is" : "are", base::Join(shown, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// The name in `folder` that `name` was probably meant to be.
std::optional<std::string> Alike(const fs::path& folder, const std::string& name, bool folders_alone) {
  const std::vector<std::string> names = NamesIn(folder, folders_alone);
  for (const std::string& other : names) {
    if (other != name && LowerCase(other) == LowerCase(name)) return other;
  }
  return base::ClosestMatch(name, names);
}

// Why a path does not exist: its first missing component, and what exists instead.
std::string WhatIsThere(const fs::path& path, bool folders_alone) {
  fs::path known, missing;
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  for (const fs::path& part : whole) {
    if (part.empty()) continue;
    const fs::path next = known / part;
    if (!IsThere(next)) {
      missing = part;
      break;
    }
    if (!IsFolder(next) && next != whole) return fmt::format("{} is a file", Shown(next));
    known = next;
  }
  if (missing.empty()) return "it is a file";
  if (missing == "~") return "'~' stands for the home folder in a shell alone; write the whole path";
  const auto alike = Alike(known, missing.string(), folders_alone);
  return fmt::format("{} is there, and has no '{}'{}", Shown(known), Shown(missing),
                     alike ? fmt::format("; perhaps '{}' is meant", base::Printable(*alike)) : "");
}

class PathChecker {
 public:
  explicit PathChecker(const Config& config) : config_(config), data_(config.data), root_(config.data.root) {}

  std::vector<std::string> Check() {
    if (data_.kind != model_spec::DataKind::kSynthetic) CheckRoot();
    if (!config_.model.weights.empty()) CheckWeights();
    CheckJobFolder();
    return std::move(problems_);
  }

  // Folders that must exist below the root.
  std::vector<std::string> SplitFolders() const {
    switch (data_.kind) {
      case model_spec::DataKind::kSynthetic:
        return {};
      case model_spec::DataKind::kMmseg:
        return {data_.image_dir + "/" + data_.train, data_.image_dir + "/" + data_.val,
                data_.mask_dir + "/" + data_.train, data_.mask_dir + "/" + data_.val};
      case model_spec::DataKind::kLoveda:
      case model_spec::DataKind::kFolders:
        return {data_.train, data_.val};
      case model_spec::DataKind::kMmrs1m: {
        std::vector<std::string> folders = {"classification"};
        for (const std::string& set : data_.sets) {
          folders.push_back("classification/" + set + "/" + data_.train);
          folders.push_back("classification/" + set + "/" + data_.val);
        }
        return folders;
      }
    }
    return {};
  }

 private:
  template <typename... Arguments>
  void AddProblem(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    problems_.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  void CheckRoot() {
    if (!IsFolder(root_)) {
      return AddProblem(
          "data.root = {}: there is no such folder: {}. Correct it in the recipe, or give --set data.root=FOLDER",
          Quoted(Shown(root_)), WhatIsThere(root_, true));
    }
    if (access(root_.c_str(), R_OK | X_OK) != 0) {
      return AddProblem("data.root = {}: it cannot be read: {}", Quoted(Shown(root_)), std::strerror(errno));
    }
    const std::vector<std::string> folders = SplitFolders();
    // If the root is one level off, report that once instead of once per folder.
    const std::string& first = folders.front();
    if (!IsFolder(root_ / first)) {
      if (const auto better = BetterRoot(first)) {
        return AddProblem("data.root = {}: it has no {}, but {} has: give --set data.root={}", Quoted(Shown(root_)),
                          base::Printable(first), Shown(*better), Shown(*better));
      }
    }
    bool complete = true;
    for (const std::string& folder : folders) complete = CheckFolder(folder) && complete;
    if (!complete) return;
    if (data_.kind == model_spec::DataKind::kLoveda) CheckLoveda();
    if (data_.kind == model_spec::DataKind::kMmrs1m && data_.sets.empty()) CheckSets();
  }

  bool CheckFolder(const std::string& folder) {
    const fs::path path = root_ / folder;
    if (IsFolder(path)) return true;
    AddProblem("{}: there is no folder {}: {}", KeyOf(folder), Shown(path), WhatIsThere(path, true));
    return false;
  }

  // The key that sets this folder.
  std::string KeyOf(const std::string& folder) const {
    if (data_.kind == model_spec::DataKind::kMmseg) {
      const std::string dir =
          folder.substr(0, folder.rfind('/')) == data_.image_dir ? "data.image_dir" : "data.mask_dir";
      return dir + (folder.ends_with("/" + data_.val) && data_.val != data_.train ? ", data.val" : ", data.train");
    }
    if (data_.kind == model_spec::DataKind::kMmrs1m) return folder == "classification" ? "data.root" : "data.sets";
    return folder == data_.train ? "data.train" : "data.val";
  }

  // A folder one level higher or deeper that contains what the root should contain.
  std::optional<fs::path> BetterRoot(const std::string& first) const {
    std::error_code error;
    fs::path above = fs::absolute(root_, error).lexically_normal();
    if (!above.has_filename()) above = above.parent_path();
    for (int levels = 0; levels < 2 && above.has_relative_path(); ++levels) {
      above = above.parent_path();
      if (IsFolder(above / first)) return above;
    }
    for (const std::string& name : NamesIn(root_, true)) {
      if (IsFolder(root_ / name / first)) return root_ / name;
    }
    return std::nullopt;
  }

  void CheckLoveda() {
    for (const std::string& part : {data_.train, data_.val}) {
      bool any = false;
      for (const char* scene : {"Rural", "Urban"}) {
        const fs::path folder = root_ / part / scene;
        if (!IsFolder(folder)) continue;
        any = true;
        for (const char* inner : {"images_png", "masks_png"}) {
          if (!IsFolder(folder / inner)) {
            AddProblem("data.root: there is no folder {}: {}. LoveDA has {}/{{Rural,Urban}}/{{images_png,masks_png}}",
                       Shown(folder / inner), WhatIsThere(folder / inner, true), base::Printable(part));
          }
        }
      }
      if (!any) {
        AddProblem(
            "data.root: {} has neither Rural nor Urban; {}. LoveDA has {}/{{Rural,Urban}}/{{images_png,masks_png}}",
            Shown(root_ / part), Listed(NamesIn(root_ / part, true)), base::Printable(part));
      }
    }
  }

  void CheckSets() {
    const std::vector<std::string> sets = NamesIn(root_ / "classification", true);
    if (sets.size() == 1) {
      for (const std::string& part : {data_.train, data_.val}) CheckFolder("classification/" + sets[0] + "/" + part);
      return;
    }
    if (sets.empty()) return AddProblem("data.root: {} has no set in it", Shown(root_ / "classification"));
    AddProblem("data.sets: say which sets of {} to train on: {}. Such as: --set 'data.sets=[{}]'",
               Shown(root_ / "classification"), Listed(sets), Quoted(base::Printable(sets[0])));
  }

  void CheckWeights() {
    const fs::path given = config_.model.weights;
    fs::path file = given;
    const std::string key = fmt::format("model.weights = {}", Quoted(Shown(given)));
    if (IsFolder(given)) {
      file = given / "model.safetensors";
      if (!IsThere(file)) {
        return AddProblem("{}: this folder has no model.safetensors; {}. Name a safetensors file", key,
                          Listed(NamesIn(given, false)));
      }
    }
    if (!IsThere(file)) return AddProblem("{}: there is no such file: {}", key, WhatIsThere(file, false));
    std::ifstream stream(file, std::ios::binary);
    std::array<char, 9> head{};
    if (!stream.read(head.data(), head.size())) {
      return AddProblem("{}: it cannot be read, or is empty: {}", key, std::strerror(errno));
    }
    const std::string_view start(head.data(), head.size());
    if (start.starts_with("version ")) {
      return AddProblem("{}: this is a pointer of Git LFS, not the weights; fetch them with: git lfs pull", key);
    }
    if (start.starts_with("PK") || start.starts_with("\x80")) {
      return AddProblem(
          "{}: this is a file of Python's pickle, not safetensors; get the safetensors of the model, or convert it "
          "with safetensors.torch.save_file",
          key);
    }
    if (start[8] != '{') return AddProblem("{}: this is no safetensors file", key);
  }

  void CheckJobFolder() {
    const fs::path folder = JobFolder(config_).path;
    std::error_code error;
    fs::path nearest = fs::absolute(folder, error);
    while (!IsThere(nearest) && nearest.has_relative_path()) nearest = nearest.parent_path();
    if (!IsFolder(nearest)) {
      return AddProblem("work_dirs: {} cannot be made: {} is a file", Shown(folder), Shown(nearest));
    }
    if (access(nearest.c_str(), W_OK | X_OK) != 0) {
      AddProblem("work_dirs: {} cannot be written: {}: {}. Name another folder: --set work_dirs=FOLDER", Shown(folder),
                 Shown(nearest), std::strerror(errno));
    }
  }

  const Config& config_;
  const model_spec::DataOptions& data_;
  const fs::path root_;
  std::vector<std::string> problems_;
};

bool IsImage(const std::string& name) {
  const std::string lower = LowerCase(name);
  for (const char* suffix : {".png", ".jpg", ".jpeg", ".tif", ".tiff"}) {
    if (lower.ends_with(suffix)) return true;
  }
  return false;
}

// False if there are too many files or a folder cannot be read.
bool Count(const fs::path& folder, const std::string& suffix, std::uint64_t most, std::uint64_t& count) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (suffix.empty() ? IsImage(name) : name.ends_with(suffix)) ++count;
    if (count > most) return false;
  }
  return !error;
}

}  // namespace

std::vector<std::string> PathProblems(const Config& config) {
  return PathChecker(config).Check();
}

std::optional<std::uint64_t> CountTrainingSamples(const Config& config, std::uint64_t most) {
  const model_spec::DataOptions& data = config.data;
  if (data.kind == model_spec::DataKind::kSynthetic) return static_cast<std::uint64_t>(data.synthetic_train);
  const fs::path root = data.root;
  std::vector<fs::path> folders;
  std::string suffix;
  switch (data.kind) {
    case model_spec::DataKind::kSynthetic:
      break;
    case model_spec::DataKind::kMmseg:
      folders = {root / data.image_dir / data.train};
      suffix = data.image_suffix;
      break;
    case model_spec::DataKind::kLoveda:
      for (const char* scene : {"Rural", "Urban"}) {
        if (IsFolder(root / data.train / scene)) folders.push_back(root / data.train / scene / "images_png");
      }
      break;
    case model_spec::DataKind::kMmrs1m:
      for (const std::string& set : data.sets.empty() ? NamesIn(root / "classification", true) : data.sets) {
        folders.push_back(root / "classification" / set / data.train);
      }
      break;
    case model_spec::DataKind::kFolders:
      folders = {root / data.train};
      break;
  }
  std::uint64_t count = 0;
  for (const fs::path& folder : folders) {
    if (!Count(folder, suffix, most, count)) return std::nullopt;
  }
  return count;
}

}  // namespace fulldeck::config
