// Shared by the tests of the log follower: reading and writing files as ranks do, a pseudo-terminal, and what its
// screen would show.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"
#include "base/subprocess.h"

namespace fulldeck::logs::testing_support {

using namespace std::chrono_literals;

inline std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// As a rank does: one write at the end of the file.
inline void AppendTo(const std::string& path, std::string_view text) {
  const base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// Returns what can be read now without waiting.
inline std::string ReadAvailable(int fd, std::size_t at_most = std::string::npos) {
  std::string text;
  std::array<char, 65536> bytes;
  pollfd entry{fd, POLLIN, 0};
  while (text.size() < at_most && poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0) {
    const ssize_t count = read(fd, bytes.data(), std::min(bytes.size(), at_most - text.size()));
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

inline std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

template <typename Condition>
bool RunUntil(base::EventLoop& loop, Condition condition, base::Duration timeout = 30s) {
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + timeout;
  while (!condition()) {
    if (base::SteadyClock::Instance().Now() > deadline) return false;
    loop.RunOnce(10ms);
  }
  return true;
}

// Runs everything that is due by now, and nothing else.
inline void RunWhatIsDue(base::EventLoop& loop) {
  for (int quiet = 0; quiet < 2;) quiet = loop.RunOnce(0ms) ? 0 : quiet + 1;
}

struct PseudoTerminal {
  explicit PseudoTerminal(unsigned short columns) {
    user.Reset(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_EQ(grantpt(user.get()), 0);
    EXPECT_EQ(unlockpt(user.get()), 0);
    program.Reset(open(ptsname(user.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_TRUE(program.valid());
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    EXPECT_EQ(ioctl(program.get(), TIOCSWINSZ, &size), 0);
  }
  base::UniqueFd user;     // what the terminal's window reads
  base::UniqueFd program;  // what the program writes to
};

// The lines that a terminal shows after these bytes; interprets '\r', '\n' and "erase to the end of the line".
inline std::vector<std::string> ScreenAfter(const std::string& bytes) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] == '\r') {
      column = 0;
    } else if (bytes[at] == '\n') {
      lines.emplace_back();
    } else if (bytes.compare(at, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      at += 2;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = bytes[at];
    }
  }
  return lines;
}

// Limits the files of this process to `bytes`: simulates a full disk that can be emptied again.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_before_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_before_)(int);
};

// The launcher ignores SIGPIPE, and so must every user of a Console.
struct WithoutSigpipe {
  WithoutSigpipe() : before(std::signal(SIGPIPE, SIG_IGN)) {}
  ~WithoutSigpipe() { std::signal(SIGPIPE, before); }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  void (*before)(int);
};

}  // namespace fulldeck::logs::testing_support
