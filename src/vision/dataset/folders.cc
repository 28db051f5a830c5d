#include "dataset/folders.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/text.h"

namespace fulldeck::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLevels = 16;  // symbolic links can form a cycle
constexpr std::size_t kNames = 8;

std::string Lower(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string Joined(const std::string& folder, const std::string& name) {
  return name.empty() ? folder : (fs::path(folder) / name).string();
}

// All files and folders that are not hidden.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.empty() && name.front() != '.') names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string WhatIsIn(const std::string& folder) {
  const std::vector<std::string> names = NamesIn(folder);
  return names.empty() ? "it is empty" : "it has " + FewOf(names);
}

}  // namespace

std::string FewOf(const std::vector<std::string>& names) {
  std::vector<std::string> few;
  for (std::size_t i = 0; i < std::min(names.size(), kNames); ++i) few.push_back(base::Printable(names[i]));
  std::string text = base::Join(few, ", ");
  if (names.size() > kNames) text += " and " + std::to_string(names.size() - kNames) + " more";
  return text;
}

bool HasImageSuffix(const std::string& name) {
  const std::string lower = Lower(name);
  constexpr std::array<const char*, 5> kSuffixes = {".png", ".jpg", ".jpeg", ".tif", ".tiff"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&lower](const char* suffix) { return EndsWith(lower, suffix); });
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::vector<std::string> FoldersIn(const std::string& folder) {
  std::vector<std::string> names = NamesIn(folder);
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&](const std::string& name) { return !IsFolder(Joined(folder, name)); }),
              names.end());
  return names;
}

base::Result<void> ExpectFolder(const std::string& root, const std::string& below) {
  if (root.empty()) return base::Error{"data.root is not set. Set it to the folder of the data set."};
  const std::string wanted = Joined(root, below);
  if (IsFolder(wanted)) return {};
  // Finds how far the path exists.
  fs::path there = fs::path(wanted).lexically_normal();
  std::string missing;
  while (!there.empty() && !IsFolder(there.string())) {
    missing = there.filename().string();
    const fs::path parent = there.has_parent_path() ? there.parent_path() : fs::path();
    if (parent == there) break;
    there = parent;
  }
  const std::string reached = there.empty() ? "." : there.string();
  std::string message = "There is no folder " + base::Printable(wanted) + ". ";
  std::error_code error;
  if (fs::exists(Joined(reached, missing), error) && !IsFolder(Joined(reached, missing)))
    return base::Error{message + base::Printable(Joined(reached, missing)) + " is a file."};
  for (const std::string& name : NamesIn(reached)) {
    if (Lower(name) == Lower(missing)) {
      return base::Error{message + base::Printable(reached) + " has " + base::Printable(name) +
                         ": large and small letters count. Name it as it is."};
    }
  }
  if (!below.empty() && IsFolder(root)) {
    const std::string first = fs::path(below).begin()->string();
    for (const std::string& name : FoldersIn(root)) {
      if (!IsFolder(Joined(Joined(root, name), first))) continue;
      return base::Error{message + "It is one level deeper: set data.root = \"" + base::Printable(Joined(root, name)) +
                         "\"."};
    }
    const std::string parent = fs::absolute(root, error).lexically_normal().parent_path().string();
    const std::string higher = EndsWith(root, "/") ? fs::path(parent).parent_path().string() : parent;
    if (IsFolder(Joined(higher, below)))
      return base::Error{message + "It is one level higher: set data.root = \"" + base::Printable(higher) + "\"."};
  }
  message += base::Printable(reached) + " is there; " + WhatIsIn(reached) + ".";
  if (const auto near = base::ClosestMatch(missing, NamesIn(reached)))
    message += " Did you mean " + base::Printable(*near) + "?";
  return base::Error{message};
}

base::Result<std::vector<std::string>> FilesBelow(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> files;
  std::map<std::string, std::uint64_t> others;  // suffixes of the files that do not match
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (name.empty() || name.front() == '.') {
      at.disable_recursion_pending();
    } else if (at->is_directory(ignored)) {
      if (at.depth() >= kMaxLevels) at.disable_recursion_pending();
    } else if (suffix.empty() ? HasImageSuffix(name) : EndsWith(name, suffix)) {
      files.push_back(at->path().lexically_relative(folder).string());
    } else {
      ++others[at->path().extension().string()];
    }
  }
  if (error) return base::Error{"The folder " + base::Printable(folder) + " cannot be read: " + error.message() + "."};
  if (files.empty()) {
    std::string message = "No file below " + base::Printable(folder) + " ends with " +
                          (suffix.empty() ? ".png, .jpg or .tif" : base::Printable(suffix)) + ". ";
    if (others.empty()) return base::Error{message + "There is no file at all."};
    std::vector<std::string> kinds;
    for (const auto& [kind, count] : others)
      kinds.push_back(std::to_string(count) + (kind.empty() ? " without a suffix" : " of " + kind));
    return base::Error{message + "There are " + FewOf(kinds) + ". Set data.image_suffix or data.mask_suffix."};
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace fulldeck::dataset
