// What the ranks put into their buffers, and the check of what came out. Whole numbers so small that every sum of them
// is exact in the type, whatever order a library adds in; different for every rank and from one call to the next, so
// that stale, swapped or shifted data is found.
//
// The numbers repeat after kPeriod elements, a prime, so that blocks moved by a round number of elements do not fit
// either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/element.h"

namespace fulldeck::bench {

struct WrongValue {
  std::uint64_t element = 0;  // where, in what was checked
  double found = 0;
  double expected = 0;
};

// One rank's; not thread safe.
class Pattern {
 public:
  static constexpr std::uint64_t kPeriod = 4093;
  static constexpr int kSumOfAll = -1;  // instead of a rank

  Pattern(const Element& element, int ranks);

  // `count` numbers of `rank` (or the sums of all ranks' numbers) for call number `call`, from element `first` on.
  void Write(std::byte* to, std::uint64_t count, int rank, std::uint64_t first, std::uint64_t call);
  // Where the data is not that; nothing when all of it is.
  std::optional<WrongValue> Check(const std::byte* data, std::uint64_t count, int rank, std::uint64_t first,
                                  std::uint64_t call);

 private:
  const std::byte* From(int rank, std::uint64_t first, std::uint64_t call);
  std::uint64_t ValueOf(int rank, std::uint64_t index) const;

  const Element& element_;
  const int ranks_;
  const std::uint64_t values_;  // numbers are 0 … values_ − 1
  // Two periods, so that a whole one can be copied from any place in the first.
  std::vector<std::byte> sums_;
  std::vector<std::byte> table_;
  int table_rank_ = kSumOfAll;
};

}  // namespace fulldeck::bench
