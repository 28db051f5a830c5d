// Opens files in a folder whose parents another user may be able to rename: a run folder below a world-writable log
// folder. For paths that were resolved when the folder was created.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace fulldeck::base {

// Like open(2), but no component of the absolute `path` may be a symbolic link (ELOOP). On kernels before 5.6, and in
// containers that forbid openat2, only the last component is checked. Async-signal-safe.
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
