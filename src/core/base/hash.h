// Hash: a 64-bit checksum of bytes, for checkpoints and for comparing ranks. Against damage, not against people who
// forge.
//
// Eight lanes of 64 bits take the little-endian words of the data in turn; a lane's step is m = (lane ^ word) times an
// odd number, lane = m ^ (m >> 32). That is one-to-one in the lane and in the word, and so is every step of the end, so
// a change within any eight aligned bytes (every single bit, byte or word) is found for certain; other damage is missed
// by chance alone, once in 2^64. The length is part of the sum. docs/checkpoints.md has the definition and a value to
// compare with. As fast as memory, with plain arithmetic, and the same value on every processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::base {

// Takes data in pieces of any length; the pieces do not change the sum. Not thread safe.
class Hash {
 public:
  Hash();
  void Add(const void* data, std::size_t bytes);
  // The sum of everything so far; more may be added afterwards.
  std::uint64_t Sum() const;

 private:
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kStripe = kLanes * sizeof(std::uint64_t);

  std::uint64_t lanes_[kLanes];
  unsigned char waiting_[kStripe];  // the data's last length_ % kStripe bytes
  std::uint64_t length_ = 0;
};

std::uint64_t HashOf(std::string_view data);

// 16 lower-case hexadecimal digits, and back; anything else is nothing.
std::string FormatHash(std::uint64_t sum);
std::optional<std::uint64_t> ParseHash(std::string_view text);

}  // namespace fulldeck::base
