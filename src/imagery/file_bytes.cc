#include "imagery/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "base/text.h"
#include "base/unique_fd.h"

namespace fulldeck::imagery {
namespace {

constexpr std::int64_t kMostFileBytes = std::int64_t{4} << 30;

}  // namespace

base::Result<std::string> ReadWholeFile(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return base::ErrnoError(base::Printable(path) + " cannot be opened");
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return base::ErrnoError(base::Printable(path) + " cannot be looked at");
  if (!S_ISREG(status.st_mode)) return base::Error{base::Printable(path) + " is not a file."};
  if (status.st_size > kMostFileBytes) {
    return base::Error{base::Printable(path) + " has " +
                       base::FormatByteSize(static_cast<std::uint64_t>(status.st_size)) +
                       "; images of more than 4 GiB are not read. Cut it into tiles."};
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError(base::Printable(path) + " cannot be read");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);  // somebody may have made it shorter meanwhile
  return bytes;
}

base::Result<void> WriteWholeFile(const std::string& path, std::string_view bytes) {
  const std::string beside = path + ".writing-" + std::to_string(getpid());
  const auto failed = [&](const std::string& what) {
    const base::Error error = base::ErrnoError(base::Printable(path) + " cannot be " + what);
    unlink(beside.c_str());
    return error;
  };
  {
    const base::UniqueFd file(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.valid()) return failed("written");
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t wrote = write(file.get(), rest.data(), rest.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return failed("written");
      rest.remove_prefix(static_cast<std::size_t>(wrote));
    }
    if (fsync(file.get()) != 0) return failed("synced");
  }
  if (rename(beside.c_str(), path.c_str()) != 0) return failed("renamed");
  return {};
}

}  // namespace fulldeck::imagery
