#include "base/files/unique_fd.h"

#include <unistd.h>

namespace fulldeck::base {

void UniqueFd::Reset(int fd) {
  // EINTR on close leaves the descriptor closed on Linux; a second close could hit a descriptor that another thread
  // got.
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

}  // namespace fulldeck::base
