// A file to which lines of several streams are appended, whole lines in large writes. A full disk does not stop the
// run: lines wait in a bounded buffer, the write is retried a second later, and lines that did not fit are counted.
// The file contains a note with the count at the place where they are missing. Not for data that must never be lost:
// that is in the ranks' own files.
//
// A write may block for as long as the kernel blocks writers of this file system.
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

  // The file is created if it does not exist. A failure to open it is treated like a failure to write.
  AppendedLog(std::string path, const base::Clock& clock);
  // Writes the buffered lines, as far as that is possible now.
  ~AppendedLog();
  AppendedLog(const AppendedLog&) = delete;
  AppendedLog& operator=(const AppendedLog&) = delete;

  // Appends `prefix`, `text`, `mark` and a newline. Together they must be shorter than kBuffer, and none may contain
  // a newline.
  void PutLine(std::string_view prefix, std::string_view text, std::string_view mark);

  // Writes the buffer out; after a failure not before kRetryAfter has passed.
  void Flush();

  // Retries once more, now. Lines that still cannot be written are dropped, and the next warning counts all lines
  // lost since the last Finish. The file can still be used afterwards.
  void Finish();

  bool failing() const { return error_ != 0; }
  std::uint64_t lost_lines() const { return lost_lines_; }

  // A sentence for the user, each reported once: the first write failure, or lost lines. Empty if there is none.
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
  bool torn_ = false;      // the last byte written does not end a line
  bool repaired_ = false;  // the buffer begins with the newline that ends a torn line, whose rest was dropped
  int error_ = 0;          // why the last write failed; 0: it succeeded
  int last_error_ = 0;
  bool failure_reported_ = false;
  base::TimePoint retry_at_;
  std::uint64_t lost_lines_ = 0;
  std::uint64_t unreported_loss_in_file_ = 0;
  std::uint64_t unreported_loss_to_user_ = 0;
  std::string warning_;
};

}  // namespace fulldeck::logs
