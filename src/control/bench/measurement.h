// Measures one cell of the table in one rank: repeats the same call, each time with rewritten buffers and a common
// start, and checks every value of the result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/library.h"

namespace fulldeck::bench {

struct Cell {
  const Operation* operation = nullptr;
  const Element* element = nullptr;
  std::uint64_t bytes = 0;
  bool shared = false;   // buffers in memory that all members can access
  bool on_cuda = false;  // buffers on a card; torch's ranks only
  // Repeats for this time, including rewriting and checking, within these numbers of calls.
  double seconds = 1;
  int min_calls = 3;
  int max_calls = 2000;
  // For tests: the last rank changes one value of its first result, like a library that computes wrong values.
  bool spoil = false;
};

// One of the three strings is set if `times_ns` is incomplete.
struct Measurement {
  std::vector<std::uint64_t> times_ns;  // of this rank, one per call
  std::uint64_t checked = 0;            // elements that were compared with their expected values
  std::optional<std::string> cannot;    // the library does not support this call
  std::optional<std::string> failed;    // a call returned an error, or memory could not be allocated
  std::optional<std::string> wrong;     // a value was wrong
};

// Every member must call it with the same cell. Two warm-up calls are checked but not timed.
Measurement Measure(Library& library, const Cell& cell);

// How many calls to make next; 0: done. Pure.
int NextBatch(const Cell& cell, int made, double seconds_passed);

}  // namespace fulldeck::bench
