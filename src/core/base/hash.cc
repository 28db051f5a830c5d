#include "base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text.h"

namespace fulldeck::base {
namespace {

constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // odd: 2^64 divided by the golden ratio
constexpr std::uint64_t kSecond = 0xC2B2AE3D27D4EB4F;      // odd: a prime

std::uint64_t Step(std::uint64_t lane, std::uint64_t word) {
  const std::uint64_t mixed = (lane ^ word) * kMultiplier;
  return mixed ^ (mixed >> 32);  // so that a change of the highest bits does not stay one
}

std::uint64_t LoadLittleEndian(const unsigned char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// One-to-one, and every bit of the input reaches every bit of the output.
std::uint64_t Scramble(std::uint64_t value) {
  value ^= value >> 32;
  value *= kSecond;
  value ^= value >> 29;
  value *= kMultiplier;
  value ^= value >> 32;
  return value;
}

}  // namespace

Hash::Hash() {
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes_[lane] = Scramble(lane + 1);
}

void Hash::Add(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  const std::size_t filled = length_ % kStripe;
  length_ += bytes;
  if (filled != 0) {
    const std::size_t taken = std::min(bytes, kStripe - filled);
    if (taken != 0) std::memcpy(waiting_ + filled, at, taken);
    if (filled + taken < kStripe) return;
    at += taken;
    bytes -= taken;
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes_[lane] = Step(lanes_[lane], LoadLittleEndian(waiting_ + lane * 8));
  }
  // In variables of its own, which the compiler keeps in registers.
  std::uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  std::uint64_t e = lanes_[4], f = lanes_[5], g = lanes_[6], h = lanes_[7];
  while (bytes >= kStripe) {
    a = Step(a, LoadLittleEndian(at));
    b = Step(b, LoadLittleEndian(at + 8));
    c = Step(c, LoadLittleEndian(at + 16));
    d = Step(d, LoadLittleEndian(at + 24));
    e = Step(e, LoadLittleEndian(at + 32));
    f = Step(f, LoadLittleEndian(at + 40));
    g = Step(g, LoadLittleEndian(at + 48));
    h = Step(h, LoadLittleEndian(at + 56));
    at += kStripe;
    bytes -= kStripe;
  }
  lanes_[0] = a;
  lanes_[1] = b;
  lanes_[2] = c;
  lanes_[3] = d;
  lanes_[4] = e;
  lanes_[5] = f;
  lanes_[6] = g;
  lanes_[7] = h;
  if (bytes != 0) std::memcpy(waiting_, at, bytes);
}

std::uint64_t Hash::Sum() const {
  std::uint64_t last[kLanes];
  std::copy(lanes_, lanes_ + kLanes, last);
  if (const std::size_t filled = length_ % kStripe; filled != 0) {
    // The zeros behind the end cannot be taken for data: the length is part of the sum.
    unsigned char padded[kStripe] = {};
    std::memcpy(padded, waiting_, filled);
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      last[lane] = Step(last[lane], LoadLittleEndian(padded + lane * 8));
  }
  std::uint64_t sum = Scramble(length_);
  for (const std::uint64_t lane : last) sum = Scramble(sum ^ lane);
  return sum;
}

std::uint64_t HashOf(std::string_view data) {
  Hash hash;
  hash.Add(data.data(), data.size());
  return hash.Sum();
}

std::string FormatHash(std::uint64_t sum) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[i] = kDigits[(sum >> (60 - 4 * i)) & 15];
  return text;
}

std::optional<std::uint64_t> ParseHash(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  return base::ParseInteger<std::uint64_t>(text, 16);
}

}  // namespace fulldeck::base
