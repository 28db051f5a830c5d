#include "wire/private_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace fulldeck::wire {

namespace {

// The first of FOLDER.*, in the order of their names, that is a private folder of this user.
std::string FirstOwnedBeside(const std::string& folder) {
  const std::filesystem::path path(folder);
  std::error_code error;
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error)) {
    const std::string name = entry.path().string();
    if (!name.starts_with(folder + ".") || (!first.empty() && first < name)) continue;
    if (CheckPrivateFolder(name, "")) first = name;
  }
  return first;
}

}  // namespace

std::string OwnedFolder(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0 || status.st_uid == geteuid()) return folder;
  std::string owned = FirstOwnedBeside(folder);
  if (!owned.empty()) return owned;
  owned = folder + ".XXXXXX";
  if (mkdtemp(owned.data()) == nullptr) return folder;
  // Two processes may have created one each at the same time: both use the first.
  const std::string first = FirstOwnedBeside(folder);
  if (first != owned) rmdir(owned.c_str());
  return first;
}

std::string RuntimeFolder(const base::Environment& environment) {
  if (const auto runtime = environment.Get("XDG_RUNTIME_DIR"); runtime && !runtime->empty()) {
    if (access(runtime->c_str(), W_OK) == 0) return *runtime + "/fulldeck";
  }
  return OwnedFolder("/tmp/fulldeck-" + std::to_string(geteuid()));
}

base::Result<void> CheckPrivateFolder(const std::string& folder, std::string_view variable) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) return base::ErrnoError(folder);
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
    return base::Error{folder + " is not a folder that only you can write to; set " + std::string(variable) +
                       " to one that is"};
  }
  return {};
}

base::Result<void> MakePrivateFolder(const std::string& folder, std::string_view variable) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return base::ErrnoError("cannot make " + folder);
  return CheckPrivateFolder(folder, variable);
}

}  // namespace fulldeck::wire
