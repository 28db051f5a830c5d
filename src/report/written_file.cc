#include "report/written_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "base/unique_fd.h"

namespace fulldeck::report {

base::Result<void> WriteAllTo(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return base::ErrnoError("cannot write " + base::Printable(path));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

base::Result<void> ReplaceFile(const std::string& path, std::string_view bytes) {
  const std::string draft = path + ".writing-" + std::to_string(getpid());
  base::UniqueFd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return base::ErrnoError("cannot create " + base::Printable(draft));
  base::Result<void> done = WriteAllTo(file.get(), bytes, draft);
  if (done.ok() && fsync(file.get()) != 0) done = base::ErrnoError("cannot sync " + base::Printable(draft));
  if (done.ok() && rename(draft.c_str(), path.c_str()) != 0)
    done = base::ErrnoError("cannot rename " + base::Printable(draft) + " to " + base::Printable(path));
  if (!done.ok()) unlink(draft.c_str());
  return done;
}

}  // namespace fulldeck::report
