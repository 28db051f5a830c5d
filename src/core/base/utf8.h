// UTF-8 one character at a time, for text that may be anything. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fulldeck::base {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The first character of `text`, which is not empty. Invalid UTF-8 gives one invalid byte.
CodePoint FirstCodePoint(std::string_view text);

// Whether a person may be shown it: valid, no control character that a terminal would act on, no direction or
// zero-width mark that makes one name look like another.
bool IsPrintable(const CodePoint& character);

// Columns of a terminal that it takes: 0 for accents that stand on the letter before, 2 for the wide letters of East
// Asia and for emoji, else 1.
std::size_t ColumnsOf(const CodePoint& character);

}  // namespace fulldeck::base
