// One cell of the table in one rank: the same call again and again, each time with rewritten buffers, from a common
// start, and with every value of the result checked.
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
  bool shared = false;   // buffers in memory that all members can reach
  bool on_cuda = false;  // buffers on a card; torch's ranks only
  // Calls go on until this time is over, rewriting and checking included, within these numbers of calls.
  double seconds = 1;
  int min_calls = 3;
  int max_calls = 2000;
  // For tests: the last rank changes one value of its first result, as a library that calculates wrongly would.
  bool spoil = false;
};

// One of the three texts is set when there is no full row of times.
struct Measurement {
  std::vector<std::uint64_t> times_ns;  // of this rank, one a call
  std::uint64_t checked = 0;            // elements that were compared with what they must be
  std::optional<std::string> cannot;    // the library has no such call
  std::optional<std::string> failed;    // a call returned an error, or memory cannot be had
  std::optional<std::string> wrong;     // a value was not what it must be
};

// Every member calls it with the same cell. Two calls before the first measured one are checked, not timed.
Measurement Measure(Library& library, const Cell& cell);

// How many calls to make next, given what was made so far: 0 ends. Pure.
int NextBatch(const Cell& cell, int made, double seconds_passed);

}  // namespace fulldeck::bench
