#include "bench/pattern.h"

#include <algorithm>
#include <cstring>

namespace fulldeck::bench {
namespace {

constexpr std::uint64_t kMaxValues = 13;
// The values shift by this many elements per call. It is coprime to the period.
constexpr std::uint64_t kShift = 1009;

// As many values as possible such that the sum of the largest ones is exact.
std::uint64_t ValuesFor(const Element& element, int ranks) {
  return std::min(kMaxValues - 1, element.exact_to / static_cast<std::uint64_t>(ranks)) + 1;
}

}  // namespace

Pattern::Pattern(const Element& element, int ranks)
    : element_(element),
      ranks_(ranks),
      values_(ValuesFor(element, ranks)),
      sums_(2 * kPeriod * element.bytes),
      table_(2 * kPeriod * element.bytes) {
  for (std::uint64_t i = 0; i < 2 * kPeriod; ++i) {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) sum += ValueOf(rank, i % kPeriod);
    Encode(element_, sum, sums_.data() + i * element_.bytes);
  }
}

std::uint64_t Pattern::ValueOf(int rank, std::uint64_t index) const {
  const std::uint64_t mixed = index * 2654435761 + static_cast<std::uint64_t>(rank) * 40503 + 12345;
  return (mixed & 0xffffffff) / 128 % values_;
}

const std::byte* Pattern::From(int rank, std::uint64_t first, std::uint64_t call) {
  const std::uint64_t place = (first + call % kPeriod * kShift) % kPeriod;
  if (rank == kSumOfAll) return sums_.data() + place * element_.bytes;
  if (table_rank_ != rank) {
    for (std::uint64_t i = 0; i < 2 * kPeriod; ++i) {
      Encode(element_, ValueOf(rank, i % kPeriod), table_.data() + i * element_.bytes);
    }
    table_rank_ = rank;
  }
  return table_.data() + place * element_.bytes;
}

void Pattern::Write(std::byte* to, std::uint64_t count, int rank, std::uint64_t first, std::uint64_t call) {
  const std::byte* from = From(rank, first, call);
  for (std::uint64_t done = 0; done < count; done += kPeriod) {
    std::memcpy(to + done * element_.bytes, from, std::min(kPeriod, count - done) * element_.bytes);
  }
}

std::optional<WrongValue> Pattern::Check(const std::byte* data, std::uint64_t count, int rank, std::uint64_t first,
                                         std::uint64_t call) {
  const std::byte* expected = From(rank, first, call);
  for (std::uint64_t done = 0; done < count; done += kPeriod) {
    const std::uint64_t here = std::min(kPeriod, count - done);
    const std::byte* found = data + done * element_.bytes;
    if (std::memcmp(found, expected, here * element_.bytes) == 0) continue;
    for (std::uint64_t i = 0; i < here; ++i) {
      const std::uint64_t at = i * element_.bytes;
      if (std::memcmp(found + at, expected + at, element_.bytes) == 0) continue;
      return WrongValue{done + i, Decode(element_, found + at), Decode(element_, expected + at)};
    }
  }
  return std::nullopt;
}

}  // namespace fulldeck::bench
