#include "agent/signal_text.h"

#include <unistd.h>

#include <cerrno>

namespace fulldeck::agent {

void SignalText::WriteTo(int fd) {
  Flush();
  fd_ = fd;
}

SignalText& SignalText::operator<<(std::string_view text) {
  for (const char character : text) {
    if (used_ == bytes_.size()) Flush();
    bytes_[used_++] = character;
  }
  return *this;
}

SignalText& SignalText::operator<<(std::int64_t number) {
  char digits[20];
  std::size_t first = sizeof digits;
  std::uint64_t rest = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  do {
    digits[--first] = static_cast<char>('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  if (number < 0) *this << "-";
  return *this << std::string_view(digits + first, sizeof digits - first);
}

SignalText& SignalText::Hex(std::uint64_t number) {
  char digits[16];
  std::size_t first = sizeof digits;
  do {
    digits[--first] = "0123456789abcdef"[number & 15];
    number >>= 4;
  } while (number != 0);
  return *this << "0x" << std::string_view(digits + first, sizeof digits - first);
}

SignalText& SignalText::Seconds(const timespec& time) {
  const long milliseconds = time.tv_nsec / 1'000'000;
  *this << std::int64_t{time.tv_sec};
  return *this << (milliseconds < 10 ? ".00" : milliseconds < 100 ? ".0" : ".") << std::int64_t{milliseconds};
}

SignalText& SignalText::Quoted(std::string_view text) {
  for (const char character : text) {
    const bool control = static_cast<unsigned char>(character) < 0x20 || character == 0x7f;
    *this << std::string_view(control ? "?" : &character, 1);
  }
  return *this;
}

void SignalText::Flush() {
  std::size_t done = 0;
  while (fd_ >= 0 && done < used_) {
    const ssize_t wrote = write(fd_, bytes_.data() + done, used_ - done);
    if (wrote > 0) {
      done += static_cast<std::size_t>(wrote);
    } else if (wrote == 0 || errno != EINTR) {
      break;
    }
  }
  used_ = 0;
}

}  // namespace fulldeck::agent
