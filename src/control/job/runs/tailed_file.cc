#include "job/runs/tailed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/files/open_beneath.h"
#include "base/text.h"

namespace fulldeck::job {
namespace {

constexpr off_t kBlock = 65536;
constexpr off_t kMaxAtOnce = off_t{1} << 20;

}  // namespace

base::Result<off_t> BeginOfLastLines(int fd, std::uint64_t lines) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return base::ErrnoError("cannot read");
  std::vector<char> block(kBlock);
  off_t end = status.st_size;
  if (lines == 0) return end;
  // The newline at the very end closes the last line and begins none.
  std::uint64_t newlines_left = lines;
  bool is_last_byte = true;
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - kBlock);
    const ssize_t got = pread(fd, block.data(), static_cast<std::size_t>(end - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError("cannot read");
    if (got != end - begin) return off_t{0};  // the file was truncated meanwhile
    for (off_t i = got - 1; i >= 0; --i) {
      const bool newline = block[static_cast<std::size_t>(i)] == '\n';
      if (newline && !is_last_byte && --newlines_left == 0) return begin + i + 1;
      is_last_byte = false;
    }
    end = begin;
  }
  return off_t{0};
}

base::Result<void> TailedFile::Open() {
  auto opened = base::OpenBeneath(folder_, relative_);
  if (!opened && opened.error().system_error == ENOENT) return {};
  if (!opened) return opened.error();
  base::UniqueFd file = std::move(*opened);
  offset_ = 0;
  if (last_lines_) {
    const auto begin = BeginOfLastLines(file.get(), *last_lines_);
    if (!begin) return base::Error{base::Printable(path_) + ": " + begin.error().message, begin.error().system_error};
    offset_ = *begin;
    last_lines_.reset();  // a file that replaces it later is read completely
  }
  file_ = std::move(file);
  return {};
}

base::Result<bool> TailedFile::Poll(const Sink& sink) {
  if (!file_.valid()) {
    const auto opened = Open();
    if (!opened) return opened.error();
    if (!file_.valid()) return false;
  }
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) return base::ErrnoError(base::Printable(path_));
  if (status.st_size < offset_) offset_ = 0;
  std::vector<char> block(kBlock);
  const off_t limit = offset_ + kMaxAtOnce;
  while (offset_ < limit) {
    const ssize_t got = pread(file_.get(), block.data(), block.size(), offset_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError("cannot read " + base::Printable(path_));
    if (got == 0) break;
    offset_ += got;
    sink({block.data(), static_cast<std::size_t>(got)});
  }
  if (offset_ >= limit) return true;
  struct stat named {};
  const bool replaced =
      lstat(path_.c_str(), &named) == 0 && (named.st_dev != status.st_dev || named.st_ino != status.st_ino);
  if (replaced) file_.Reset();
  return replaced;
}

}  // namespace fulldeck::job
