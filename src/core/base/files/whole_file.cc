#include "base/files/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/files/unique_fd.h"
#include "base/text.h"

namespace fulldeck::base {

Result<std::string> ReadWholeFile(const std::string& path, std::size_t most) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return ErrnoError("cannot read " + Printable(path));
  // Pipes and the like report no size. One extra byte detects the end without growing the string.
  std::string bytes(std::min(static_cast<std::size_t>(status.st_size), most) + 1, '\0');
  std::size_t have = 0;
  for (;;) {
    const ssize_t got = read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("cannot read " + Printable(path));
    have += static_cast<std::size_t>(got);
    if (have > most) return Error{Printable(path) + " is larger than " + FormatByteSize(most)};
    if (got == 0) break;
    if (have == bytes.size()) bytes.resize(2 * have);
  }
  bytes.resize(have);
  return bytes;
}

std::string ReadRange(int fd, std::uint64_t begin, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = pread(fd, text.data() + have, bytes - have, static_cast<off_t>(begin + have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

Result<void> WriteAllTo(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("cannot write " + Printable(path));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

namespace {

// Creates a new file. An existing one (a planted link, or what a killed process left behind) is never written to.
UniqueFd MakeDraft(const std::string& path, std::string* draft) {
  constexpr int kTries = 100;
  for (int number = 0; number < kTries; ++number) {
    *draft = path + ".writing-" + std::to_string(getpid());
    if (number > 0) draft->append("-").append(std::to_string(number));
    UniqueFd file(open(draft->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file.valid() || errno != EEXIST) return file;
  }
  errno = EEXIST;
  return {};
}

// Without this, the new name may be lost in a power failure. Some file systems do not support it.
bool SyncFolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const UniqueFd opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder that is writable but not readable cannot be synced.
  return !opened.valid() || fsync(opened.get()) == 0 || errno == EINVAL || errno == ENOTSUP;
}

}  // namespace

Result<void> ReplaceFile(const std::string& path, std::string_view bytes) {
  std::string draft;
  const UniqueFd file = MakeDraft(path, &draft);
  if (!file.valid()) return ErrnoError("cannot write " + Printable(path));
  Result<void> done = WriteAllTo(file.get(), bytes, path);
  if (done.ok() && (fsync(file.get()) != 0 || rename(draft.c_str(), path.c_str()) != 0)) {
    done = ErrnoError("cannot write " + Printable(path));
  }
  if (!done.ok()) {
    unlink(draft.c_str());
    return done;
  }
  if (!SyncFolderOf(path)) return ErrnoError("cannot write " + Printable(path));
  return {};
}

}  // namespace fulldeck::base
