// How a range of elements is split into chunks, and a chunk into the shares of several ranks. Pure; every rank computes
// the same result.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fulldeck::collectives {

inline constexpr std::uint64_t kRangeAlignment = 64;  // shares begin on their own cache lines

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

struct Range {
  std::uint64_t begin = 0;  // elements
  std::uint64_t count = 0;
};

// Share number `index` of `shares`. Shares at the end may be empty.
constexpr Range ShareOf(std::uint64_t count, std::uint64_t element_bytes, int index, int shares) {
  const std::uint64_t grain = kRangeAlignment / element_bytes;
  const std::uint64_t even = RoundUp((count + shares - 1) / shares, grain);
  const std::uint64_t begin = std::min(count, even * index);
  return {begin, std::min(even, count - begin)};
}

// `elements` in chunks of at most `chunk_bytes`, of about equal length; at least one, so that every call has a barrier.
class Chunks {
 public:
  Chunks(std::uint64_t elements, std::uint64_t element_bytes, std::uint64_t chunk_bytes) : count_(elements) {
    const std::uint64_t grain = kRangeAlignment / element_bytes;
    const std::uint64_t most = std::max(grain, chunk_bytes / element_bytes / grain * grain);
    number_ = std::max<std::uint64_t>(1, (count_ + most - 1) / most);
    each_ = std::min(most, RoundUp((count_ + number_ - 1) / number_, grain));
  }
  std::uint64_t number() const { return number_; }
  Range At(std::uint64_t index) const {
    const std::uint64_t begin = std::min(count_, index * each_);
    return {begin, std::min(each_, count_ - begin)};
  }

 private:
  std::uint64_t count_ = 0;
  std::uint64_t number_ = 1;
  std::uint64_t each_ = 0;
};

}  // namespace fulldeck::collectives
