#include "base/files/unique_fd.h"

#include <unistd.h>

namespace fulldeck::base {

void UniqueFd::Reset(int fd) {
  // After EINTR, Linux has closed the descriptor; a second close could hit one that another thread has just opened.
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

}  // namespace fulldeck::base
