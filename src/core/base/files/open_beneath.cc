#include "base/files/open_beneath.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "base/text.h"

namespace fulldeck::base {

Result<UniqueFd> OpenBeneath(const std::string& folder, std::string_view relative) {
  const std::string path = Printable(folder + "/" + std::string(relative));
  UniqueFd at(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat owner {};
  if (!at.valid() || fstat(at.get(), &owner) != 0) return ErrnoError("cannot read " + path);
  const std::vector<std::string_view> parts = Split(relative, '/');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part(parts[i]);
    if (part.empty() || part == "..") return Error{path + " leads out of its folder", ELOOP};
    const bool last = i + 1 == parts.size();
    const int kind = last ? O_NONBLOCK | O_NOCTTY : O_DIRECTORY;
    UniqueFd next(openat(at.get(), part.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind));
    // With O_DIRECTORY, Linux reports a symbolic link as ENOTDIR.
    struct stat link {};
    const int error = errno;
    const bool is_link =
        !next.valid() && fstatat(at.get(), part.c_str(), &link, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(link.st_mode);
    if (is_link) {
      return Error{path + " is a symbolic link, or lies behind one: it is not followed", ELOOP};
    }
    if (!next.valid()) return ErrnoError("cannot read " + path, error);
    at = std::move(next);
  }
  struct stat status {};
  if (fstat(at.get(), &status) != 0) return ErrnoError("cannot read " + path);
  if (!S_ISREG(status.st_mode)) return Error{path + " is no plain file"};
  if (status.st_uid != owner.st_uid) {
    return Error{path + " belongs to another user than its run folder: it is not read", EPERM};
  }
  return at;
}

}  // namespace fulldeck::base
