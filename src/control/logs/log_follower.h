// Follows the log files of the ranks (each rank appends directly to its own files) and passes whole lines on: to the
// console with a short prefix, to the merged log, to filtered copies. It never blocks a rank. If the console falls
// behind, lines are dropped from the console only, and counted; the merged log contains every line.
//
// Event-driven: inotify reports new bytes, epoll reports when the console accepts more. Files for which the kernel
// has no inotify watch left are polled every 100 ms. Memory is bounded however fast the ranks write, and a handler
// runs for a few milliseconds at most.
//
// Definition of a line (logs/line_splitter.h splits the bytes):
// - "\r\n" is a newline.
// - A '\r' elsewhere restarts the line. The merged log gets the text after the last '\r'. The console also shows the
//   earlier states: the latest one, once per second and stream.
// - A line longer than 64 KiB is split into several lines; all but the last end in kLineGoesOn.
// - An unfinished line is held back until it ends. The console shows it as a line if nothing more arrives for half a
//   second (a prompt); the rest follows as a separate line.
//
// The process must ignore SIGPIPE: a console whose reader is gone is turned off, and the run continues.
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
  std::string prefix;   // for console, merged log and filtered copy: "[3] "; empty: none; at most 256 bytes
  int color = 0;        // of the prefix on a terminal: 31–36; 0: none
  int console_fd = -1;  // 1, 2, or -1 if the console does not show it
  bool merged = true;
  std::vector<std::string> filters;  // lines that contain any of these are copied to filtered_path
  std::string filtered_path;         // several streams may share one
  // Receives every whole line, on the loop's thread while the file is read. It must not call the follower.
  std::function<void(std::string_view)> on_line;
};

struct LogFollowerOptions {
  std::string merged_path;  // appended to; empty: none
  int stdout_fd = 1;        // the descriptors for console_fd 1 and 2; -1: none
  int stderr_fd = 2;
  bool color = false;  // colored prefixes if the console is a terminal; the caller has checked NO_COLOR
  // Called once for each problem that does not stop the run: disk full, a truncated file. Runs on the loop's thread,
  // from the loop or just before a call of this object returns. It may call LogLine.
  std::function<void(const std::string&)> warn;
  bool inotify = true;  // false: test the fallback of machines without inotify
};

// One thread: the loop's.
class LogFollower {
 public:
  LogFollower(base::EventLoop& loop, LogFollowerOptions options);
  // Writes the merged log's buffer out. Does not read the ranks' files once more: call Drain for that.
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // Follows from the first byte of the file. Fails if the file cannot be opened. A file that gets shorter was
  // truncated (copytruncate): its content after that counts as new.
  base::Result<void> Follow(FollowedStream stream);

  // A line of fulldeck ("fulldeck: …", without newline; text with newlines becomes several lines). It goes to the
  // console's stderr in order with the ranks' lines, and to the merged log immediately. Never dropped from the merged
  // log unless the disk is full.
  void LogLine(std::string_view line);

  // A line that a terminal shows below all others and that the next call overwrites; no effect on anything but a
  // terminal. Cut to the terminal's width. An empty line removes it, and so does Drain.
  void ShowProgress(std::string_view line);

  // Reads the files to their current end and passes everything on, including an unfinished last line. For use after
  // the ranks have ended; it does not wait for what a surviving process writes later. Then it stops following these
  // files; Follow can be called again. Waits for the console at most `timeout` in total; lines that the console has
  // not accepted by then are dropped and counted. Lines that the merged log lost to a full disk are reported through
  // warn.
  void Drain(base::Duration timeout);

  std::uint64_t dropped_console_lines() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fulldeck::logs
