#include "fulldeck/random.h"

#include <cmath>
#include <string>

namespace fulldeck {
namespace {

constexpr std::uint32_t Low(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}
constexpr std::uint32_t High(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

// The counter has one word for the position, so the 128 bits of (purpose, epoch, sample) go through the cipher itself:
// they are encrypted under the seed, and the result identifies the stream.
std::array<std::uint32_t, 4> StreamName(std::uint64_t seed, Purpose purpose, std::uint64_t epoch,
                                        std::uint64_t sample) {
  const std::array<std::uint32_t, 2> key = {Low(seed), High(seed)};
  const auto first = Philox({Low(epoch), High(epoch), static_cast<std::uint32_t>(purpose), 0x66756c6c}, key);
  return Philox({first[0] ^ Low(sample), first[1] ^ High(sample), first[2], first[3]}, key);
}

}  // namespace

std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {High(b) ^ counter[1] ^ key[0], Low(b), High(a) ^ counter[3] ^ key[1], Low(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t epoch, std::uint64_t sample) {
  const auto name = StreamName(seed, purpose, epoch, sample);
  key_ = {name[0], name[1]};
  counter_ = {0, 0, name[2], name[3]};
}

std::uint32_t RandomStream::Next32() {
  if (left_ == 0) {
    block_ = Philox(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    left_ = 4;
  }
  return block_[static_cast<std::size_t>(4 - left_--)];
}

std::uint64_t RandomStream::Next64() {
  const std::uint64_t low = Next32();
  return low | std::uint64_t{Next32()} << 32;
}

std::uint64_t RandomStream::Below(std::uint64_t bound) {
  if (bound == 0) throw Error("a random number below 0 was asked for.");
  // Words above the largest multiple of the bound would favor small numbers.
  const std::uint64_t refused = (std::uint64_t{0} - bound) % bound;
  while (true) {
    const std::uint64_t word = Next64();
    if (word >= refused) return word % bound;
  }
}

double RandomStream::Uniform() {
  return static_cast<double>(Next64() >> 11) * 0x1p-53;
}

double RandomStream::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * M_PI * Uniform());
}

RandomOrder::RandomOrder(std::uint64_t size, std::uint64_t seed, Purpose purpose, std::uint64_t epoch) : size_(size) {
  const auto name = StreamName(seed, purpose, epoch, 0);
  key_ = {name[0], name[1]};
  name_ = {name[2], name[3]};
  while (half_bits_ < 32 && (size - 1) >> (2 * half_bits_) != 0 && size > 1) ++half_bits_;
}

std::uint64_t RandomOrder::At(std::uint64_t position) const {
  if (position >= size_) {
    throw Error("position " + std::to_string(position) + " of an order of " + std::to_string(size_) + " is asked for.");
  }
  const std::uint32_t mask = half_bits_ == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << half_bits_) - 1;
  std::uint64_t value = position;
  // A Feistel cipher over the next power of four, at most four times as large. Cycle walking from a number below size
  // returns below size after four steps on average, and the result is again one-to-one.
  do {
    auto left = static_cast<std::uint32_t>(value >> half_bits_) & mask;
    auto right = static_cast<std::uint32_t>(value) & mask;
    for (std::uint32_t round = 0; round < 8; ++round) {
      const std::uint32_t mixed = Philox({right, round, name_[0], name_[1]}, key_)[0];
      const std::uint32_t next = (left ^ mixed) & mask;
      left = right;
      right = next;
    }
    value = std::uint64_t{left} << half_bits_ | right;
  } while (value >= size_);
  return value;
}

}  // namespace fulldeck
