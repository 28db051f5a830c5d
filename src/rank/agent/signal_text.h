// SignalText: formats a report in a fixed buffer and writes it to a descriptor. For signal handlers: no allocation, no
// lock, no locale. A full buffer is written out, so text may have any length. Thread rule: one thread at a time; each
// instance is protected by report_lock.h.
#pragma once

#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fulldeck::agent {

class SignalText {
 public:
  // Sets where the text goes from now on; -1: it is dropped. The caller owns the descriptor.
  void WriteTo(int fd);

  SignalText& operator<<(std::string_view text);
  SignalText& operator<<(std::int64_t number);
  SignalText& Hex(std::uint64_t number);
  // "1794736655.612"
  SignalText& Seconds(const timespec& time);
  // Unchanged, except that control characters become '?', so that a hostile name cannot start a new line.
  SignalText& Quoted(std::string_view text);

  void Flush();

 private:
  int fd_ = -1;
  std::size_t used_ = 0;
  std::array<char, 4096> bytes_{};
};

}  // namespace fulldeck::agent
