// One output descriptor for the user: a terminal, a pipe, a file, a socket, or none. Lines are queued and written
// whole as fast as the descriptor accepts them; the caller never blocks. If the queue is full, lines are dropped and
// counted, and one line reports the count as soon as there is room.
//
// The descriptor's flags are not changed: O_NONBLOCK would affect the user's shell, which shares it. A pipe or
// terminal is reopened through /proc and written without blocking there. If it cannot be reopened, it is written only
// when poll reports that it accepts bytes, at most a page at a time. Lines up to 4096 bytes reach a pipe in one
// write, even if other programs write to it. A file is written directly, which takes as long as the disk does.
//
// The process must ignore SIGPIPE: the failing write shows that the reader is gone, and turns the console off. Bytes
// of lines are passed on unchanged, including colors; they contain no newline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"

namespace fulldeck::logs {

// The part of `text` that fits into `columns` of a terminal; characters that a terminal would interpret become '?'.
std::string CutToColumns(std::string_view text, std::size_t columns);

// Whether both descriptors refer to the same file, pipe or terminal, so that one Console must serve both.
bool LeadToTheSamePlace(int fd, int other_fd);

// One thread: the loop's.
class Console {
 public:
  static constexpr std::size_t kQueue = 1024 * 1024;
  static constexpr std::size_t kReserve = 64 * 1024;  // beyond kQueue, for lines of fulldeck

  // `lines_are_in` names where dropped lines can be found. The caller owns the descriptor and must keep it open
  // longer than this object. If it is closed or -1, the console is off.
  Console(base::EventLoop& loop, int fd, std::string lines_are_in);
  // Removes the progress line. Lines that are still queued are lost.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Once off, it stays off: closed, or its reader is gone.
  bool on() const { return kind_ != Kind::kOff; }
  bool is_terminal() const { return terminal_; }

  void PutLine(std::string_view prefix, std::string_view text, std::string_view mark);
  // A line of fulldeck, which may use the reserve.
  void PutOurLine(std::string_view text);
  // Shown below all lines until the next call; empty: none. Terminals only.
  void SetProgress(std::string_view text);

  // Writes what the descriptor accepts now; the loop writes the rest when it accepts more. Call it after a batch of
  // lines.
  void Flush();

  // Waits until at most `bytes` are queued. Returns false if the deadline passes first.
  bool WaitUntilQueued(std::size_t bytes, base::TimePoint deadline);

  // Drops the queue, except the rest of a line that is partly written.
  void DropQueue();

  std::uint64_t dropped_lines() const { return dropped_lines_; }
  // Why it was turned off, reported once: "Broken pipe". Empty if it was not.
  std::string TakeError();

 private:
  enum class Kind { kOff, kStream, kSocket, kFile };

  std::size_t queued() const { return queue_.size() - written_; }
  bool Add(std::string_view prefix, std::string_view text, std::string_view mark, std::size_t limit);
  void AddDropNotice();
  void AddProgress();
  std::size_t NextChunk() const;
  long WriteChunk(std::size_t bytes);
  void Written(std::size_t bytes);
  void WaitForRoom(int error);
  void StopWaiting();
  void TurnOff(int error);

  base::EventLoop& loop_;
  int fd_;
  std::string lines_are_in_;
  Kind kind_ = Kind::kOff;
  bool terminal_ = false;
  base::UniqueFd reopened_;       // the same pipe or terminal, opened without blocking
  base::EventLoop::Id wait_ = 0;  // the watch or timer that calls Flush; 0: none
  bool stalled_ = false;          // wait_ is a timer: a file that cannot grow

  std::string queue_;  // its first written_ bytes have been written
  std::size_t written_ = 0;
  bool inside_line_ = false;  // the last byte written does not end a line
  bool dropping_ = false;
  std::uint64_t dropped_lines_ = 0;
  std::uint64_t unreported_drops_ = 0;

  std::string progress_;
  bool progress_stands_ = false;  // the last queued bytes are the progress line
  bool progress_changed_ = false;
  std::string error_;
};

}  // namespace fulldeck::logs
