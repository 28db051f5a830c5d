#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include <algorithm>
#include <string>

namespace fulldeck::base {

void Log(Severity severity, std::string_view message) {
  std::string line = "fulldeck: ";
  if (severity == Severity::kWarning) line += "warning: ";
  if (severity == Severity::kError) line += "error: ";
  line += message;
  line += '\n';
  // A pipe that poll() reports writable accepts PIPE_BUF bytes without blocking; a longer write could block.
  constexpr int kPollTimeoutMs = 1000;
  std::string_view left = line;
  while (!left.empty()) {
    pollfd polled{STDERR_FILENO, POLLOUT, 0};
    const int ready = poll(&polled, 1, kPollTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return;
    const ssize_t written = write(STDERR_FILENO, left.data(), std::min<std::size_t>(left.size(), PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    // If stderr cannot be written, the line is dropped.
    if (written <= 0) return;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace fulldeck::base
