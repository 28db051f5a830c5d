// The contents of the ranks' buffers, and the check of the results. The values are integers so small that every sum is
// exact in the element type, whatever the order of the additions. They differ between ranks and from one call to the
// next, so that stale, swapped or shifted data is detected.
//
// The values repeat after kPeriod elements, a prime, so that blocks shifted by a round number of elements do not match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/element.h"

namespace fulldeck::bench {

struct WrongValue {
  std::uint64_t element = 0;  // index in the checked data
  double found = 0;
  double expected = 0;
};

// For one rank; not thread safe.
class Pattern {
 public:
  static constexpr std::uint64_t kPeriod = 4093;
  static constexpr int kSumOfAll = -1;  // instead of a rank

  Pattern(const Element& element, int ranks);

  // Writes `count` values of `rank` (or the sums over all ranks) for call number `call`, starting with element `first`.
  void Write(std::byte* to, std::uint64_t count, int rank, std::uint64_t first, std::uint64_t call);
  // The first wrong value; nullopt if all are correct.
  std::optional<WrongValue> Check(const std::byte* data, std::uint64_t count, int rank, std::uint64_t first,
                                  std::uint64_t call);

 private:
  const std::byte* From(int rank, std::uint64_t first, std::uint64_t call);
  std::uint64_t ValueOf(int rank, std::uint64_t index) const;

  const Element& element_;
  const int ranks_;
  const std::uint64_t values_;  // values are 0 … values_ − 1
  // Two periods, so that a complete one can be copied from any position in the first.
  std::vector<std::byte> sums_;
  std::vector<std::byte> table_;
  int table_rank_ = kSumOfAll;
};

}  // namespace fulldeck::bench
