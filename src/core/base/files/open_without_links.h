// Opening files in a folder whose parents another user may be able to rename: a run folder below a log folder that is
// open to everybody. For paths that were resolved when the folder was made.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace fulldeck::base {

// As open(2), but no part of the absolute `path` may be a symbolic link (ELOOP); on kernels before 5.6, and where a
// container forbids openat2, only its last part is checked. Safe in a signal handler.
inline int OpenWithoutLinks(const char* path, int flags, mode_t mode = 0) {
  // struct open_how of <linux/openat2.h>, which old C libraries lack.
  struct {
    std::uint64_t flags, mode, resolve;
  } how{static_cast<std::uint64_t>(flags), (flags & O_CREAT) != 0 ? std::uint64_t{mode} : 0, /*RESOLVE_NO_SYMLINKS*/ 4};
  constexpr long kOpenat2 = 437;  // the same on every architecture
  const long opened = syscall(kOpenat2, AT_FDCWD, path, &how, sizeof how);
  if (opened >= 0 || (errno != ENOSYS && errno != EPERM && errno != EINVAL)) return static_cast<int>(opened);
  return open(path, flags | O_NOFOLLOW, mode);
}

}  // namespace fulldeck::base
