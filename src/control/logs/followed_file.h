// One stream of one rank while it is followed: reads its file, splits the bytes into lines and passes each to the
// destinations. It uses no event loop: LogFollower calls it to read and passes the time in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "logs/appended_log.h"
#include "logs/console.h"
#include "logs/line_splitter.h"
#include "logs/log_follower.h"

namespace fulldeck::logs {

// One thread. The destinations must outlive it; each may be null.
class FollowedFile final : private LineSplitter::Sink {
 public:
  static constexpr base::Duration kIdleBeforeShown = std::chrono::milliseconds(500);
  static constexpr base::Duration kBetweenRewrites = std::chrono::seconds(1);

  struct Destinations {
    Console* console = nullptr;
    AppendedLog* merged = nullptr;
    AppendedLog* filtered = nullptr;
    bool color = false;
  };

  static base::Result<base::UniqueFd> Open(const std::string& path);
  FollowedFile(base::UniqueFd file, FollowedStream stream, Destinations destinations);
  FollowedFile(const FollowedFile&) = delete;
  FollowedFile& operator=(const FollowedFile&) = delete;

  int fd() const { return file_.get(); }
  const std::string& path() const { return stream_.path; }
  std::uint64_t offset() const { return offset_; }
  Console* console() const { return to_.console; }

  // Reads once, at most buffer.size() bytes, and passes the lines on. Returns true if there may be more.
  bool ReadSome(std::vector<char>& buffer, std::size_t at_most, base::TimePoint now);

  // The file is complete: the unfinished line counts as a line.
  void Finish();

  // Shows on the console what is due by now. Returns true if something remains to be shown later.
  bool ShowPending(base::TimePoint now);
  bool HasPending() const;

  // Warns if another program has deleted the rank's log. Reading continues as long as the file is open.
  void CheckDeleted();

  // Sentences for the user, each reported once per file. Empty if there is none.
  std::string TakeWarning();

 private:
  void OnLine(std::string_view text, bool goes_on) override;
  void OnOverwritten(std::string_view text) override;
  bool WasCut();
  std::string_view NotShownYet() const;
  void Warn(bool& reported, const std::string& sentence);

  base::UniqueFd file_;
  FollowedStream stream_;
  Destinations to_;
  std::string console_prefix_;
  LineSplitter splitter_;
  std::uint64_t offset_ = 0;

  base::TimePoint now_;
  base::TimePoint last_bytes_;
  base::TimePoint rewrite_due_;  // when the console may show the next state of a line that is being overwritten
  std::size_t shown_ = 0;        // bytes of the unfinished line that the console has shown
  std::string overwritten_;      // the latest overwritten state that the console has not shown

  std::string warning_;
  bool reported_cut_ = false;
  bool reported_deleted_ = false;
  bool reported_unreadable_ = false;
};

}  // namespace fulldeck::logs
