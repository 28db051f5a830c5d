// Decodes UTF-8 one character at a time, for text that may contain anything. Pure functions.
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

// The first character of `text`, which must not be empty. Invalid UTF-8 gives one invalid byte.
CodePoint FirstCodePoint(std::string_view text);

// Whether it is safe to print: valid, not a control character that a terminal would interpret, and not a direction or
// zero-width mark that makes one name look like another.
bool IsPrintable(const CodePoint& character);

// Terminal columns: 0 for combining accents, 2 for East Asian wide characters and emoji, otherwise 1.
std::size_t ColumnsOf(const CodePoint& character);

}  // namespace fulldeck::base
