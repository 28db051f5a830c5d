// A file that somebody else appends to, read like `tail -f` does: the last lines first, then what comes. Passive:
// whoever owns it says when to look (inotify, a timer). The bytes are passed on as they are.
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

// Where the last `lines` lines of the file begin; 0 when it has no more than these. A last line without newline counts.
base::Result<off_t> BeginOfLastLines(int fd, std::uint64_t lines);

// Not thread safe.
class TailedFile {
 public:
  using Sink = std::function<void(std::string_view bytes)>;

  // FOLDER/relative, opened as base::OpenBeneath does: no symbolic link, no file of another user than FOLDER's.
  // `last_lines`: of what is there at the first look, only so many; absent: everything.
  TailedFile(const std::string& folder, std::string relative, std::optional<std::uint64_t> last_lines)
      : folder_(folder), relative_(std::move(relative)), path_(folder + "/" + relative_), last_lines_(last_lines) {}

  // Passes on what has come since the last look, at most 1 MiB; true when there may be more. A file that is not there
  // yet is no error: it is opened when it comes. One that was cut is read from its beginning, one that was replaced
  // from the new one's, after the rest of the old. An error for what is no plain file or cannot be read.
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
