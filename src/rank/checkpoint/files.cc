#include "checkpoint/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/files/unique_fd.h"
#include "base/text.h"
#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {
namespace {

using base::ErrnoError;
using base::Error;
using base::Result;
using base::UniqueFd;

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(UniqueFd fd, std::string path, bool syncs)
      : fd_(std::move(fd)), path_(std::move(path)), syncs_(syncs) {}

  Result<std::size_t> WriteSome(const void* data, std::size_t bytes) override {
    for (;;) {
      // The kernel writes at most 2 GiB per call; smaller chunks let the disk start while the next one is hashed.
      const ssize_t written = write(fd_.get(), data, std::min<std::size_t>(bytes, 8 << 20));
      if (written >= 0) return static_cast<std::size_t>(written);
      if (errno != EINTR) return ErrnoError("writing " + Quoted(path_));
    }
  }
  Result<void> Sync() override {
    // Never retried after an error: the kernel has then dropped the dirty pages and would report success.
    if (syncs_ && fsync(fd_.get()) != 0) return ErrnoError("syncing " + Quoted(path_));
    return {};
  }

 private:
  UniqueFd fd_;
  std::string path_;
  bool syncs_;
};

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(UniqueFd fd, std::string path, std::uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}

  std::uint64_t size() const override { return size_; }
  Result<void> ReadAt(std::uint64_t offset, void* data, std::size_t bytes) const override {
    auto* at = static_cast<unsigned char*>(data);
    while (bytes > 0) {
      const ssize_t got = pread(fd_.get(), at, std::min<std::size_t>(bytes, 1 << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoError("reading " + Quoted(path_));
      if (got == 0)
        return Error{Quoted(path_) + " ends at byte " + std::to_string(offset) + ", before its data do.", 0};
      at += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::size_t>(got);
    }
    return {};
  }

 private:
  UniqueFd fd_;
  std::string path_;
  std::uint64_t size_;
};

// fcntl locks are released with the process and are not inherited by fork, but they do not exclude two holders in the
// same process: this set does.
std::mutex held_mutex;
std::set<std::pair<dev_t, ino_t>>& Held() {
  static auto& held = *new std::set<std::pair<dev_t, ino_t>>;
  return held;
}

class RealFolderLock final : public FolderLock {
 public:
  RealFolderLock(UniqueFd fd, std::pair<dev_t, ino_t> id) : fd_(std::move(fd)), id_(id) {}
  ~RealFolderLock() override {
    const std::lock_guard lock(held_mutex);
    Held().erase(id_);
    fd_.Reset();
  }

 private:
  UniqueFd fd_;
  std::pair<dev_t, ino_t> id_;
};

}  // namespace

Result<std::unique_ptr<WritableFile>> RealFiles::Create(const std::string& path, std::uint64_t bytes) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError("creating " + Quoted(path));
  // fallocate, not posix_fallocate, which would write zeros if the file system lacks support.
  if (bytes > 0 && fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    return ErrnoError("room for " + base::FormatByteSize(bytes) + " in " + Quoted(path));
  return std::unique_ptr<WritableFile>(std::make_unique<RealWritableFile>(std::move(fd), path, syncs_));
}

Result<std::unique_ptr<ReadableFile>> RealFiles::Open(const std::string& path) {
  // Nonblocking, so that a pipe of that name does not block.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoError("opening " + Quoted(path));
  struct stat about {};
  if (fstat(fd.get(), &about) != 0) return ErrnoError("reading " + Quoted(path));
  if (!S_ISREG(about.st_mode)) return Error{Quoted(path) + " is not a plain file.", 0};
  return std::unique_ptr<ReadableFile>(
      std::make_unique<RealReadableFile>(std::move(fd), path, static_cast<std::uint64_t>(about.st_size)));
}

Result<void> RealFiles::MakeFolder(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string upper = path.substr(0, slash);
    if (mkdir(upper.c_str(), 0777) == 0) {
      const std::size_t above = upper.rfind('/');
      const std::string parent = above == std::string::npos ? "." : upper.substr(0, std::max<std::size_t>(above, 1));
      if (auto synced = SyncFolder(parent); !synced) return synced;
    } else if (errno != EEXIST) {
      const int error = errno;
      struct stat about {};
      // mkdir may fail with another error, such as EACCES, for a parent that exists: that is fine.
      if (stat(upper.c_str(), &about) != 0 || !S_ISDIR(about.st_mode))
        return ErrnoError("making the folder " + Quoted(upper), error);
    }
    if (slash == std::string::npos) break;
  }
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return ErrnoError("making the folder " + Quoted(path));
  if (!S_ISDIR(about.st_mode)) return ErrnoError("making the folder " + Quoted(path), ENOTDIR);
  return {};
}

Result<void> RealFiles::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return ErrnoError("renaming " + Quoted(from) + " to " + Quoted(to));
  return {};
}

Result<void> RealFiles::SyncFolder(const std::string& path) {
  if (!syncs_) return {};
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError("opening the folder " + Quoted(path));
  // Some network file systems keep names on the server and have nothing to sync.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoError("syncing the folder " + Quoted(path));
  return {};
}

Result<void> RealFiles::RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0) return ErrnoError("removing " + Quoted(path));
  return {};
}

Result<void> RealFiles::RemoveFolder(const std::string& path) {
  if (rmdir(path.c_str()) != 0) return ErrnoError("removing the folder " + Quoted(path));
  return {};
}

Result<std::vector<std::string>> RealFiles::List(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return ErrnoError("reading the folder " + Quoted(path));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
    errno = 0;
  }
  const int error = errno;
  closedir(folder);
  if (error != 0) return ErrnoError("reading the folder " + Quoted(path), error);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::unique_ptr<FolderLock>> RealFiles::Lock(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  const std::lock_guard guard(held_mutex);
  // Check by name first: closing a second descriptor of the file would release the lock that the first one holds.
  struct stat about {};
  const auto taken_here = [&] { return Held().count({about.st_dev, about.st_ino}) != 0; };
  if (stat(path.c_str(), &about) == 0 && taken_here())
    return Error{Quoted(folder) + ": this process already writes checkpoints there.", EAGAIN};
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError("opening " + Quoted(path));
  struct flock request {};
  request.l_type = F_WRLCK;
  request.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_SETLK, &request) != 0) {
    if (errno != EACCES && errno != EAGAIN) return ErrnoError("locking " + Quoted(path), ENOLCK);
    struct flock holder = request;
    std::string who = "another process";
    if (fcntl(fd.get(), F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK && holder.l_pid > 0)
      who = "process " + std::to_string(holder.l_pid);
    return Error{Quoted(folder) + ": " + who + " writes checkpoints there.", EAGAIN};
  }
  if (fstat(fd.get(), &about) != 0) return ErrnoError("reading " + Quoted(path));
  Held().insert({about.st_dev, about.st_ino});
  return std::unique_ptr<FolderLock>(
      std::make_unique<RealFolderLock>(std::move(fd), std::pair(about.st_dev, about.st_ino)));
}

Result<void> WriteAll(WritableFile& file, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    auto written = file.WriteSome(at, bytes);
    if (!written) return written.error();
    if (*written == 0) return base::ErrnoError("writing a checkpoint's file", ENOSPC);
    FULLDECK_CHECK(*written <= bytes);
    at += *written;
    bytes -= *written;
  }
  return {};
}

Result<std::string> ReadWhole(Files& files, const std::string& path, std::uint64_t limit) {
  auto file = files.Open(path);
  if (!file) return file.error();
  if ((*file)->size() > limit)
    return Error{Quoted(path) + " has " + base::FormatByteSize((*file)->size()) + "; more than " +
                     base::FormatByteSize(limit) + " are not read.",
                 0};
  std::string text(static_cast<std::size_t>((*file)->size()), '\0');
  if (auto read = (*file)->ReadAt(0, text.data(), text.size()); !read) return read.error();
  return text;
}

}  // namespace fulldeck::checkpoint
