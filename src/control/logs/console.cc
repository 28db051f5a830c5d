#include "logs/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/utf8.h"

namespace fulldeck::logs {
namespace {

constexpr std::size_t kAtomicWrite = 4096;  // PIPE_BUF
constexpr std::size_t kWriteEarly = 64 * 1024;
constexpr base::Duration kRetryFull = std::chrono::seconds(1);
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::size_t TerminalColumns(int fd) {
  winsize size{};
  const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

int PollFor(int fd, short events, base::Duration timeout) {
  pollfd entry{fd, events, 0};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 60'000)));
}

std::uint64_t CountLines(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

std::string CutToColumns(std::string_view text, std::size_t columns) {
  std::string cut;
  std::size_t used = 0;
  while (!text.empty()) {
    const base::CodePoint character = base::FirstCodePoint(text);
    const bool shown = base::IsPrintable(character);
    used += shown ? base::ColumnsOf(character) : 1;
    if (used > columns) break;
    cut += shown ? text.substr(0, character.bytes) : "?";
    text.remove_prefix(character.bytes);
  }
  return cut;
}

bool LeadToTheSamePlace(int fd, int other_fd) {
  struct stat one {};
  struct stat other {};
  if (fstat(fd, &one) != 0 || fstat(other_fd, &other) != 0) return false;
  if (S_ISCHR(one.st_mode) && S_ISCHR(other.st_mode)) return one.st_rdev == other.st_rdev;
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

Console::Console(base::EventLoop& loop, int fd, std::string lines_are_in)
    : loop_(loop), fd_(fd), lines_are_in_(std::move(lines_are_in)) {
  struct stat status {};
  if (fd < 0) return;
  if (fstat(fd, &status) != 0) {
    error_ = std::strerror(errno);
    return;
  }
  terminal_ = isatty(fd) == 1;
  if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  } else if (S_ISFIFO(status.st_mode) || terminal_) {
    kind_ = Kind::kStream;
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    reopened_.Reset(open(link.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  } else {
    kind_ = Kind::kFile;
  }
}

Console::~Console() {
  SetProgress({});
  if (queued() <= kAtomicWrite) Flush();
  StopWaiting();
}

bool Console::Add(std::string_view prefix, std::string_view text, std::string_view mark, std::size_t limit) {
  const std::size_t bytes = prefix.size() + text.size() + mark.size() + 1;
  if (queued() + bytes + kEraseLine.size() > limit) return false;
  if (written_ > kQueue / 2) {
    queue_.erase(0, written_);
    written_ = 0;
  }
  if (progress_stands_) {
    queue_.append(kEraseLine);
    progress_stands_ = false;
  }
  queue_.append(prefix);
  queue_.append(text);
  queue_.append(mark);
  queue_.push_back('\n');
  return true;
}

void Console::PutLine(std::string_view prefix, std::string_view text, std::string_view mark) {
  if (!on()) return;
  if (!dropping_ && Add(prefix, text, mark, kQueue)) {
    if (wait_ == 0 && queued() >= kWriteEarly) Flush();
    return;
  }
  dropping_ = true;
  ++dropped_lines_;
  ++unreported_drops_;
}

void Console::PutOurLine(std::string_view text) {
  if (!on()) return;
  AddDropNotice();
  if (Add({}, text, {}, kQueue + kReserve)) return;
  dropping_ = true;
  ++dropped_lines_;
  ++unreported_drops_;
}

void Console::AddDropNotice() {
  if (unreported_drops_ == 0) return;
  const bool one = unreported_drops_ == 1;
  const std::string note = "fulldeck: " + std::to_string(unreported_drops_) +
                           (one ? " line was not shown here; it is in " : " lines were not shown here; they are in ") +
                           lines_are_in_;
  if (Add({}, note, {}, kQueue + kReserve)) unreported_drops_ = 0;
}

void Console::SetProgress(std::string_view text) {
  if (!on() || !terminal_ || text == progress_) return;
  progress_ = text;
  progress_changed_ = true;
}

void Console::AddProgress() {
  const bool wanted = !progress_.empty();
  if (wanted ? !progress_changed_ && progress_stands_ : !progress_stands_) return;
  // The last column stays free: some terminals wrap as soon as it is filled.
  const std::string cut = wanted ? CutToColumns(progress_, TerminalColumns(fd_) - 1) : std::string();
  queue_.append("\r").append(cut).append("\x1b[K");
  progress_stands_ = wanted;
  progress_changed_ = false;
}

std::size_t Console::NextChunk() const {
  if (kind_ != Kind::kStream || queued() <= kAtomicWrite) return queued();
  const std::size_t newline = queue_.rfind('\n', written_ + kAtomicWrite - 1);
  return newline == std::string::npos || newline < written_ ? kAtomicWrite : newline + 1 - written_;
}

long Console::WriteChunk(std::size_t bytes) {
  const char* start = queue_.data() + written_;
  if (kind_ == Kind::kSocket) return send(fd_, start, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (reopened_.valid()) return write(reopened_.get(), start, bytes);
  if (kind_ == Kind::kStream && PollFor(fd_, POLLOUT, base::Duration(0)) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd_, start, bytes);
}

void Console::Written(std::size_t bytes) {
  written_ += bytes;
  inside_line_ = queue_[written_ - 1] != '\n';
  if (queued() == 0) {
    queue_.clear();
    written_ = 0;
  }
  if (queued() <= kQueue / 2) {
    dropping_ = false;
    AddDropNotice();
  }
}

// Invariant: when this returns and bytes are still queued on a console that is on, wait_ is set, so that the loop
// continues the output.
void Console::Flush() {
  while (on()) {
    if (queued() == 0 && terminal_) AddProgress();
    if (queued() == 0) return StopWaiting();
    const long count = WriteChunk(NextChunk());
    if (count > 0) {
      Written(static_cast<std::size_t>(count));
    } else if (count == 0 || errno == EAGAIN || errno == ENOSPC || errno == EDQUOT) {
      return WaitForRoom(count == 0 ? ENOSPC : errno);
    } else if (errno != EINTR) {
      TurnOff(errno);
    }
  }
}

void Console::WaitForRoom(int error) {
  stalled_ = error != EAGAIN;
  if (wait_ != 0) return;
  if (!stalled_) {
    const auto watch = loop_.WhenWritable(reopened_.valid() ? reopened_.get() : fd_, [this] { Flush(); });
    if (watch) {
      wait_ = *watch;
      return;
    }
    stalled_ = true;
  }
  wait_ = loop_.After(kRetryFull, [this] {
    wait_ = 0;
    stalled_ = false;
    Flush();
  });
}

void Console::StopWaiting() {
  if (wait_ != 0) loop_.Remove(wait_);
  wait_ = 0;
  stalled_ = false;
}

bool Console::WaitUntilQueued(std::size_t bytes, base::TimePoint deadline) {
  const auto& clock = base::SteadyClock::Instance();
  for (Flush(); queued() > bytes && on() && !stalled_; Flush()) {
    const base::Duration left = deadline - clock.Now();
    if (left <= base::Duration(0)) return false;
    PollFor(reopened_.valid() ? reopened_.get() : fd_, POLLOUT, left);
  }
  return queued() <= bytes;
}

void Console::DropQueue() {
  if (queued() == 0) return;
  const std::size_t end_of_line = inside_line_ ? queue_.find('\n', written_) : std::string::npos;
  const std::size_t kept =
      end_of_line == std::string::npos ? (inside_line_ ? queue_.size() : written_) : end_of_line + 1;
  const std::uint64_t lines = CountLines(std::string_view(queue_).substr(kept));
  queue_.resize(kept);
  dropped_lines_ += lines;
  unreported_drops_ += lines;
  dropping_ = false;
  progress_stands_ = terminal_;
  AddDropNotice();
  Flush();
}

void Console::TurnOff(int error) {
  error_ = std::strerror(error);
  StopWaiting();
  kind_ = Kind::kOff;
  reopened_.Reset();
  queue_ = {};
  written_ = 0;
}

std::string Console::TakeError() {
  return std::exchange(error_, {});
}

}  // namespace fulldeck::logs
