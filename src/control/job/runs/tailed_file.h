// A file that another program appends to, read as `tail -f` does: the last lines first, then new bytes. Passive: its
// owner decides when to poll (inotify, a timer). The bytes are passed on unchanged.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::job {

// The offset of the last `lines` lines of the file; 0 if it has no more than these. A last line without newline
// counts.
base::Result<off_t> BeginOfLastLines(int fd, std::uint64_t lines);

// Not thread-safe.
class TailedFile {
 public:
  using Sink = std::function<void(std::string_view bytes)>;

  // FOLDER/relative, opened as base::OpenBeneath does: no symbolic link, no file of a user other than FOLDER's owner.
  // `last_lines`: at the first poll, only that many of the existing lines; absent: everything.
  TailedFile(const std::string& folder, std::string relative, std::optional<std::uint64_t> last_lines)
      : folder_(folder), relative_(std::move(relative)), path_(folder + "/" + relative_), last_lines_(last_lines) {}

  // Passes on the bytes since the last poll, at most 1 MiB; returns true if there may be more. A file that does not
  // exist yet is not an error: it is opened when it appears. A truncated file is read from its start. If the file is
  // replaced, the rest of the old one is read first, then the new one from its start. Fails for anything but a
  // regular file, and for an unreadable one.
  base::Result<bool> Poll(const Sink& sink);

  bool opened() const { return file_.valid(); }
  const std::string& path() const { return path_; }

 private:
  base::Result<void> Open();

  std::string folder_;
  std::string relative_;
  std::string path_;
  std::optional<std::uint64_t> last_lines_;
  base::UniqueFd file_;
  off_t offset_ = 0;
};

}  // namespace fulldeck::job
