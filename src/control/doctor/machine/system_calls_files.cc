#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/text.h"
#include "doctor/machine/system_calls.h"

namespace fulldeck::doctor {
namespace {

// A trial file in the folder; removed in the destructor.
class TrialFile {
 public:
  explicit TrialFile(const std::string& folder) : path_(folder + "/.fulldeck-doctor-" + std::to_string(getpid())) {
    unlink(path_.c_str());
    fd_.Reset(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd_.valid()) error_ = errno;
  }
  ~TrialFile() {
    fd_.Reset();
    if (error_ == 0) unlink(path_.c_str());
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;

  base::Result<void> made() const {
    if (error_ == 0) return {};
    return base::ErrnoError("no file can be made in " + base::Printable(path_.substr(0, path_.rfind('/'))), error_);
  }
  base::Result<void> Rename() {
    const std::string renamed = path_ + "-renamed";
    if (rename(path_.c_str(), renamed.c_str()) != 0) return base::ErrnoError("a file cannot be renamed");
    path_ = renamed;
    return {};
  }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  base::UniqueFd fd_;
  int error_ = 0;
};

}  // namespace

base::Result<void> SystemCalls::WriteAndReadBack(const std::string& folder, std::size_t bytes) const {
  TrialFile file(folder);
  if (const auto made = file.made(); !made) return made.error();
  std::string pattern(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>((i * 131 + (i >> 8)) & 0xff);
  if (const auto written = base::WriteAllTo(file.fd(), pattern, "a new file"); !written) return written.error();
  if (fsync(file.fd()) != 0) return base::ErrnoError("what was written cannot be synced");
  if (const auto renamed = file.Rename(); !renamed) return renamed.error();
  const auto read = base::ReadWholeFile(file.path(), bytes);
  if (!read) return read.error();
  if (*read != pattern) return base::Error{"what was read back is not what was written", EIO};
  if (unlink(file.path().c_str()) != 0) return base::ErrnoError("a file cannot be removed");
  return {};
}

base::Result<void> SystemCalls::Reserve(const std::string& folder, std::uint64_t bytes) const {
  TrialFile file(folder);
  if (const auto made = file.made(); !made) return made.error();
  // Not posix_fallocate, which would write all bytes if the file system does not support preallocation.
  if (fallocate(file.fd(), 0, 0, static_cast<off_t>(bytes)) == 0) return {};
  return base::ErrnoError(base::FormatByteSize(bytes) + " cannot be had");
}

base::Result<std::vector<base::Duration>> SystemCalls::SyncTimes(const std::string& folder, int times,
                                                                 base::Duration timeout) const {
  TrialFile file(folder);
  if (const auto made = file.made(); !made) return made.error();
  const base::Clock& clock = base::SteadyClock::Instance();
  const base::TimePoint until = clock.Now() + timeout;
  const std::string block(4096, 'f');
  std::vector<base::Duration> took;
  while (static_cast<int>(took.size()) < times && (took.empty() || clock.Now() < until)) {
    const base::TimePoint begin = clock.Now();
    if (const auto written = base::WriteAllTo(file.fd(), block, "a new file"); !written) return written.error();
    if (fsync(file.fd()) != 0) return base::ErrnoError("what was written cannot be synced");
    took.push_back(clock.Now() - begin);
  }
  return took;
}

}  // namespace fulldeck::doctor
