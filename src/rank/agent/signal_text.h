// SignalText: builds a report in memory of its own and writes it to a descriptor. For signal handlers: no allocation,
// no lock, no locale. What does not fit any more is written out first; a text of any length passes through. Thread
// rule: one thread at a time; crash_report.h has the one instance and the lock around it.
#pragma once

#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fulldeck::agent {

class SignalText {
 public:
  // Where the text goes from now on; -1: it is dropped. The caller owns the descriptor.
  void WriteTo(int fd);

  SignalText& operator<<(std::string_view text);
  SignalText& operator<<(std::int64_t number);
  SignalText& Hex(std::uint64_t number);
  // "1794736655.612"
  SignalText& Seconds(const timespec& time);
  // As it is, but control characters become '?', so that a strange name cannot begin a line of its own.
  SignalText& Quoted(std::string_view text);

  void Flush();

 private:
  int fd_ = -1;
  std::size_t used_ = 0;
  std::array<char, 4096> bytes_{};
};

}  // namespace fulldeck::agent
