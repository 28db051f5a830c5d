// A file that lines of several streams are appended to, whole lines in large writes. Keeps the run going when the disk
// is full: lines wait in a bounded buffer, writing is tried again a second later, and what found no room is counted and
// said in the file at the place where it is missing. Not for what must never be lost: the ranks' own files are that.
//
// A write may wait as long as the kernel makes writers of this file system wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/files/unique_fd.h"

namespace fulldeck::logs {

// One thread.
class AppendedLog {
 public:
  static constexpr std::size_t kBuffer = 256 * 1024;
  static constexpr base::Duration kRetryAfter = std::chrono::seconds(1);

  // The file is made when it does not exist. A failure to open it is like a failure to write.
  AppendedLog(std::string path, const base::Clock& clock);
  // Writes what is left, as far as that is possible now.
  ~AppendedLog();
  AppendedLog(const AppendedLog&) = delete;
  AppendedLog& operator=(const AppendedLog&) = delete;

  // Adds `prefix`, `text`, `mark` and a newline; together they are shorter than kBuffer. None holds a newline.
  void PutLine(std::string_view prefix, std::string_view text, std::string_view mark);

  // Writes the buffer out; after a failure not before kRetryAfter is over.
  void Flush();

  // Tries once more, now. Lines that still cannot be written are given up, and the count of all that were lost since
  // the last Finish is the next warning. The file may be used on.
  void Finish();

  bool failing() const { return error_ != 0; }
  std::uint64_t lost_lines() const { return lost_lines_; }

  // A sentence for the user, once each: writing failed for the first time, or lines were lost. Empty when there is
  // none.
  std::string TakeWarning();

 private:
  bool Write();
  bool Open();
  bool MakeRoom(std::size_t bytes);
  std::string LossNotice() const;
  void Failed(int error);

  std::string path_;
  const base::Clock& clock_;
  base::UniqueFd file_;
  std::string buffer_;
  bool torn_ = false;      // what was written last does not end a line
  bool repaired_ = false;  // the buffer begins with the newline that ends a torn line whose rest was given up
  int error_ = 0;          // why the last write failed; 0 when it did not
  int last_error_ = 0;
  bool failure_reported_ = false;
  base::TimePoint retry_at_;
  std::uint64_t lost_lines_ = 0;
  std::uint64_t unreported_loss_in_file_ = 0;
  std::uint64_t unreported_loss_to_user_ = 0;
  std::string warning_;
};

}  // namespace fulldeck::logs
