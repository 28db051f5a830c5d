// One descriptor that a person looks at: a terminal, a pipe, a file, a socket, or nothing at all. Lines are queued and
// written whole as fast as it takes them; the caller never waits. When the queue is full, lines are dropped and
// counted, and one line says so as soon as there is room.
//
// The descriptor's flags are not touched (O_NONBLOCK would hit the user's shell, which shares it). A pipe or terminal
// is opened once more through /proc and written without blocking there; where that is refused, it is written only when
// poll says that it takes bytes, at most a page at a time. Lines up to 4096 bytes reach a pipe in one piece even when
// other programs write to it. A file is written straight away, which takes as long as the disk does.
//
// The process must ignore SIGPIPE: a reader that went away is seen from the failing write, and turns the console off.
// Bytes of lines are passed on as they are, colors and all; they hold no newline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/files/unique_fd.h"

namespace fulldeck::logs {

// As much of `text` as fits into `columns` of a terminal; whatever a terminal would act on becomes '?'.
std::string CutToColumns(std::string_view text, std::size_t columns);

// Whether both descriptors lead to the same file, pipe or terminal, so that one Console must serve both.
bool LeadToTheSamePlace(int fd, int other_fd);

// One thread: the loop's.
class Console {
 public:
  static constexpr std::size_t kQueue = 1024 * 1024;
  static constexpr std::size_t kReserve = 64 * 1024;  // beyond kQueue, for lines of ours

  // `lines_are_in` names where dropped lines can be found. The descriptor stays the caller's and outlives this; a
  // closed one, or -1, is a console that is off.
  Console(base::EventLoop& loop, int fd, std::string lines_are_in);
  // Takes the progress line away. What is still queued is lost.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Off is for ever: closed, or nobody reads it any more.
  bool on() const { return kind_ != Kind::kOff; }
  bool is_terminal() const { return terminal_; }

  void PutLine(std::string_view prefix, std::string_view text, std::string_view mark);
  // A line of ours, which may use the reserve.
  void PutOurLine(std::string_view text);
  // Stands below all lines until the next call; empty for none. Terminals only.
  void SetProgress(std::string_view text);

  // Writes what it takes now; the loop does the rest when it takes more. Call it after a batch of lines.
  void Flush();

  // Waits until at most `bytes` are queued. False when that was not so in time.
  bool WaitUntilQueued(std::size_t bytes, base::TimePoint deadline);

  // Gives up what is queued, except the rest of a line that was begun.
  void DropQueue();

  std::uint64_t dropped_lines() const { return dropped_lines_; }
  // Why it went off, once: "Broken pipe". Empty when there is nothing to tell.
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
  base::EventLoop::Id wait_ = 0;  // the watch or timer that calls Flush; 0 when none
  bool stalled_ = false;          // wait_ is a timer: a file that cannot grow

  std::string queue_;  // its first written_ bytes are out
  std::size_t written_ = 0;
  bool inside_line_ = false;  // what was written last does not end a line
  bool dropping_ = false;
  std::uint64_t dropped_lines_ = 0;
  std::uint64_t unreported_drops_ = 0;

  std::string progress_;
  bool progress_stands_ = false;  // what was queued last is the progress line
  bool progress_changed_ = false;
  std::string error_;
};

}  // namespace fulldeck::logs
