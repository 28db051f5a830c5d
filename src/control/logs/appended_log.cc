#include "logs/appended_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/files/open_without_links.h"

namespace fulldeck::logs {
namespace {

std::string Lines(std::uint64_t count) {
  return count == 1 ? "1 line is" : std::to_string(count) + " lines are";
}

}  // namespace

AppendedLog::AppendedLog(std::string path, const base::Clock& clock) : path_(std::move(path)), clock_(clock) {
  buffer_.reserve(kBuffer);
  Open();
}

AppendedLog::~AppendedLog() {
  if (!buffer_.empty()) Write();
}

bool AppendedLog::Open() {
  if (!file_.valid())
    file_.Reset(base::OpenWithoutLinks(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666));
  if (!file_.valid()) Failed(errno);
  return file_.valid();
}

void AppendedLog::Failed(int error) {
  error_ = error;
  last_error_ = error;
  retry_at_ = clock_.Now() + kRetryAfter;
  if (failure_reported_) return;
  failure_reported_ = true;
  warning_ = "cannot write " + path_ + ": " + std::strerror(error) +
             ". The run goes on, and writing is tried again every second.";
}

bool AppendedLog::Write() {
  if (!Open()) return false;
  std::size_t written = 0;
  int error = 0;
  while (written < buffer_.size() && error == 0) {
    const ssize_t count = write(file_.get(), buffer_.data() + written, buffer_.size() - written);
    if (count > 0) {
      written += static_cast<std::size_t>(count);
    } else if (count == 0 || errno != EINTR) {
      error = count == 0 ? EIO : errno;
    }
  }
  if (written > 0) {
    torn_ = buffer_[written - 1] != '\n';
    repaired_ = false;
  }
  buffer_.erase(0, written);
  error_ = 0;
  if (error != 0) Failed(error);
  return error == 0;
}

void AppendedLog::Flush() {
  if (failing() && clock_.Now() < retry_at_) return;
  if (failing() || !buffer_.empty()) Write();
}

bool AppendedLog::MakeRoom(std::size_t bytes) {
  if (buffer_.size() + bytes > kBuffer) Flush();
  return buffer_.size() + bytes <= kBuffer;
}

std::string AppendedLog::LossNotice() const {
  return "fulldeck: " + Lines(unreported_loss_in_file_) + " missing here: " + std::strerror(last_error_) + "\n";
}

// Invariant: buffer_ holds whole lines, except that it may begin with the rest of a line that is partly in the file
// (torn_). After a loss no line enters the buffer before the notice about it, so the notice is at the place of the
// missing lines.
void AppendedLog::PutLine(std::string_view prefix, std::string_view text, std::string_view mark) {
  const std::size_t bytes = prefix.size() + text.size() + mark.size() + 1;
  FULLDECK_CHECK(bytes <= kBuffer);
  if (unreported_loss_in_file_ > 0) {
    const std::string note = LossNotice();
    // Only if there is room for a line after it; otherwise a disk that stays full would fill up with notes.
    if (MakeRoom(note.size() + bytes)) {
      buffer_ += note;
      unreported_loss_in_file_ = 0;
    }
  }
  if (unreported_loss_in_file_ > 0 || !MakeRoom(bytes)) {
    ++lost_lines_;
    ++unreported_loss_in_file_;
    ++unreported_loss_to_user_;
    return;
  }
  buffer_.append(prefix);
  buffer_.append(text);
  buffer_.append(mark);
  buffer_.push_back('\n');
}

void AppendedLog::Finish() {
  if (failing() || !buffer_.empty()) Write();
  if (failing()) {
    const auto newlines = static_cast<std::uint64_t>(std::count(buffer_.begin(), buffer_.end(), '\n'));
    const std::uint64_t given_up = newlines - (repaired_ ? 1 : 0);
    repaired_ = torn_;
    buffer_.assign(torn_ ? "\n" : "");
    lost_lines_ += given_up;
    unreported_loss_in_file_ += given_up;
    unreported_loss_to_user_ += given_up;
  } else if (unreported_loss_in_file_ > 0) {
    buffer_ = LossNotice();
    if (Write()) unreported_loss_in_file_ = 0;
  }
  if (unreported_loss_to_user_ == 0) return;
  warning_ += (warning_.empty() ? "" : " ") + Lines(unreported_loss_to_user_) + " missing in " + path_ + ": " +
              std::strerror(last_error_) + ".";
  unreported_loss_to_user_ = 0;
}

std::string AppendedLog::TakeWarning() {
  return std::exchange(warning_, {});
}

}  // namespace fulldeck::logs
