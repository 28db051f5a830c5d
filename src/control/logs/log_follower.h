// Follows the files that the ranks write (each rank straight into its own, append) and passes whole lines on: to the
// console with a short prefix, to the merged log, to filtered copies. Ranks are never blocked by it. When the console
// is behind, lines are dropped there alone, and counted; the merged file holds every line.
//
// Event-driven: inotify tells of new bytes, epoll when the console takes more. Files that inotify has no watch left for
// are looked at every 100 ms. Memory stays bounded whatever the flood, and a handler works for a few milliseconds at
// most.
//
// What a line is (logs/line_splitter.h does the cutting):
// - "\r\n" is a newline.
// - A '\r' elsewhere starts the line over. The merged log gets what stands behind the last one; the console also shows
// the
//   states before, the latest one once a second and stream.
// - A line longer than 64 KiB comes in pieces, each a line of its own; all but the last end in kLineGoesOn.
// - An unfinished line waits for its end. The console shows it when nothing more came for half a second (a prompt), as
// a
//   line; the rest follows in a line of its own.
//
// The process must ignore SIGPIPE: a console that nobody reads any more is turned off, and the run goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"

namespace fulldeck::logs {

inline constexpr std::string_view kLineGoesOn = " [line goes on]";

struct FollowedStream {
  std::string path;     // the rank's stdout.log or stderr.log; exists already
  std::string prefix;   // for console, merged log and filtered copy: "[3] "; empty for none; 256 bytes at most
  int color = 0;        // of the prefix on a terminal: 31–36; 0 for none
  int console_fd = -1;  // 1, 2, or -1 when it is not to be shown
  bool merged = true;
  std::vector<std::string> filters;  // lines that hold any of these are copied to filtered_path
  std::string filtered_path;         // several streams may share one
  // Given every whole line, on the loop's thread while the file is read: it must not call the follower.
  std::function<void(std::string_view)> on_line;
};

struct LogFollowerOptions {
  std::string merged_path;  // appended to; empty for none
  int stdout_fd = 1;        // what a stream's console_fd 1 and 2 stand for; -1 for none
  int stderr_fd = 2;
  bool color = false;  // coloured prefixes where a console is a terminal; the caller has looked at NO_COLOR
  // Told once about each trouble that the run outlives: disk full, a file that was cut. Called on the loop's thread
  // when a call of this object is about to return, or from the loop; it may call LogLine.
  std::function<void(const std::string&)> warn;
  bool inotify = true;  // false lets a test walk the path of machines without
};

// One thread: the loop's.
class LogFollower {
 public:
  LogFollower(base::EventLoop& loop, LogFollowerOptions options);
  // Writes the merged log's buffer out, without a last look at the ranks' files: that is Drain's.
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // From the first byte of the file. Fails when the file cannot be opened. A file that gets shorter was cut
  // (copytruncate): what stands in it then is taken as new.
  base::Result<void> Follow(FollowedStream stream);

  // A line of ours ("fulldeck: …", without newline; a text with newlines is several lines): to the console's stderr in
  // order with what the ranks said, and to the merged log at once. Never dropped from the merged log while the disk
  // takes it.
  void LogLine(std::string_view line);

  // A line that a terminal shows below the others and that is overwritten by the next; nothing on anything but a
  // terminal. Cut to the terminal's width; an empty one takes it away, and so does Drain.
  void ShowProgress(std::string_view line);

  // Reads everything that is in the files now, to the last byte, and passes it on, an unfinished last line too. For
  // when the ranks have ended; what a survivor writes later is not waited for. Then stops following these files: Follow
  // begins anew. Waits for the console at most `timeout` in all; what it has not taken then is dropped and counted.
  // Lines that the merged log lost to a full disk are told through warn.
  void Drain(base::Duration timeout);

  std::uint64_t dropped_console_lines() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::logs
