#include "wire/private_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace fulldeck::wire {

std::string RuntimeFolder(const base::Environment& environment) {
  if (const auto runtime = environment.Get("XDG_RUNTIME_DIR"); runtime && !runtime->empty()) {
    if (access(runtime->c_str(), W_OK) == 0) return *runtime + "/fulldeck";
  }
  return "/tmp/fulldeck-" + std::to_string(geteuid());
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
