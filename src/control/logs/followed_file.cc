#include "logs/followed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/files/open_without_links.h"

namespace fulldeck::logs {
namespace {

constexpr std::size_t kLongestPrefix = 256;

bool HoldsAnyOf(std::string_view line, const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(), [line](const std::string& text) {
    return memmem(line.data(), line.size(), text.data(), text.size()) != nullptr;
  });
}

}  // namespace

base::Result<base::UniqueFd> FollowedFile::Open(const std::string& path) {
  // Non-blocking: a path that turns out to be a named pipe must not block the loop.
  base::UniqueFd file(base::OpenWithoutLinks(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return base::ErrnoError("cannot follow " + path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return base::ErrnoError("cannot follow " + path);
  if (!S_ISREG(status.st_mode)) return base::Error{"cannot follow " + path + ": it is not a regular file", EINVAL};
  return file;
}

FollowedFile::FollowedFile(base::UniqueFd file, FollowedStream stream, Destinations destinations)
    : file_(std::move(file)), stream_(std::move(stream)), to_(destinations) {
  std::erase(stream_.filters, std::string());
  if (stream_.filters.empty()) to_.filtered = nullptr;
  stream_.prefix.resize(std::min(stream_.prefix.size(), kLongestPrefix));
  console_prefix_ = stream_.prefix;
  if (to_.color && stream_.color != 0 && !stream_.prefix.empty()) {
    console_prefix_ = "\x1b[" + std::to_string(stream_.color) + "m" + stream_.prefix + "\x1b[0m";
  }
}

bool FollowedFile::ReadSome(std::vector<char>& buffer, std::size_t at_most, base::TimePoint now) {
  const std::size_t wanted = std::min(at_most, buffer.size());
  ssize_t count = 0;
  do {
    count = pread(file_.get(), buffer.data(), wanted, static_cast<off_t>(offset_));
  } while (count < 0 && errno == EINTR);
  now_ = now;
  if (count < 0) {
    const int error = errno;
    Warn(reported_unreadable_, "cannot read " + stream_.path + ": " + std::strerror(error) +
                                   ". Its lines are missing here as long as that is so.");
    return false;
  }
  if (count == 0) return WasCut();
  offset_ += static_cast<std::uint64_t>(count);
  last_bytes_ = now;
  splitter_.Feed(std::string_view(buffer.data(), static_cast<std::size_t>(count)), *this);
  return static_cast<std::size_t>(count) == wanted;
}

bool FollowedFile::WasCut() {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) >= offset_) return false;
  Warn(reported_cut_, stream_.path + " became shorter while it was followed; what stands in it now is taken as new.");
  Finish();
  offset_ = 0;
  return status.st_size > 0;
}

void FollowedFile::CheckDeleted() {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || status.st_nlink > 0) return;
  Warn(reported_deleted_, stream_.path + " was deleted during the run; its lines are followed, but the file is lost.");
}

void FollowedFile::Finish() {
  splitter_.Finish(*this);
  shown_ = 0;
}

void FollowedFile::OnLine(std::string_view text, bool goes_on) {
  const std::string_view mark = goes_on ? kLineGoesOn : std::string_view();
  if (to_.merged != nullptr) to_.merged->PutLine(stream_.prefix, text, mark);
  if (to_.filtered != nullptr && HoldsAnyOf(text, stream_.filters)) {
    to_.filtered->PutLine(stream_.prefix, text, mark);
  }
  if (stream_.on_line) stream_.on_line(text);
  if (to_.console == nullptr) return;
  const std::size_t shown = std::exchange(shown_, 0);
  if (shown == 0 || shown < text.size()) to_.console->PutLine(console_prefix_, text.substr(shown), mark);
  overwritten_.clear();
}

void FollowedFile::OnOverwritten(std::string_view text) {
  if (to_.console == nullptr) return;
  text.remove_prefix(std::min(std::exchange(shown_, 0), text.size()));
  if (text.empty()) return;
  if (now_ < rewrite_due_) {
    overwritten_.assign(text);
    return;
  }
  to_.console->PutLine(console_prefix_, text, {});
  rewrite_due_ = now_ + kBetweenRewrites;
  overwritten_.clear();
}

std::string_view FollowedFile::NotShownYet() const {
  const std::string_view unfinished = splitter_.unfinished();
  const std::size_t whole = unfinished.size() - UnfinishedCharacter(unfinished);
  return whole > shown_ ? unfinished.substr(shown_, whole - shown_) : std::string_view();
}

bool FollowedFile::HasPending() const {
  return to_.console != nullptr && to_.console->on() && (!overwritten_.empty() || !NotShownYet().empty());
}

bool FollowedFile::ShowPending(base::TimePoint now) {
  if (!HasPending()) return false;
  const bool rewrite_is_due = now >= rewrite_due_;
  const std::string_view rest = NotShownYet();
  if (!rest.empty() && now - last_bytes_ >= kIdleBeforeShown && (rewrite_is_due || !splitter_.rewritten())) {
    to_.console->PutLine(console_prefix_, rest, {});
    shown_ += rest.size();
    if (splitter_.rewritten()) rewrite_due_ = now + kBetweenRewrites;
    overwritten_.clear();
  } else if (!overwritten_.empty() && rewrite_is_due) {
    to_.console->PutLine(console_prefix_, overwritten_, {});
    rewrite_due_ = now + kBetweenRewrites;
    overwritten_.clear();
  }
  return HasPending();
}

void FollowedFile::Warn(bool& reported, const std::string& sentence) {
  if (reported) return;
  reported = true;
  warning_ += (warning_.empty() ? "" : " ") + sentence;
}

std::string FollowedFile::TakeWarning() {
  return std::exchange(warning_, {});
}

}  // namespace fulldeck::logs
