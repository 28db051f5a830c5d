// Python source as words: names, numbers, strings, operators, each with its line. Comments, white space and the insides
// of strings are never words. Knows what decides where a word ends: prefixes and triple quotes, f-strings with
// expressions in them, brackets, joined lines, indentation.
//
// Reads any bytes: what is no Python gives words all the same, and never fails.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::lint {

enum class TokenKind {
  kName,      // keywords too
  kNumber,    //
  kString,    // the whole of it: prefix, quotes, text
  kOperator,  // brackets and punctuation too
  kNewline,   // the end of a logical line
};

struct Token {
  TokenKind kind = TokenKind::kNewline;
  std::string_view text;     // of the source, which must outlive it; empty for kNewline
  std::string_view content;  // of a string: what stands between the quotes, as it is written
  bool formatted = false;    // an f-string: {…} in it are expressions
  int line = 0;              // from 1
  int column = 0;            // of a line's first word: its indentation, a tab counting to the next multiple of 8

  bool Is(std::string_view word) const { return kind != TokenKind::kString && text == word; }
  bool IsName() const { return kind == TokenKind::kName; }
};

// Every logical line ends in a kNewline; empty ones give nothing.
std::vector<Token> Tokenize(std::string_view source);

// The names inside the {…} of an f-string, in order.
std::vector<std::string_view> NamesInside(const Token& formatted);

}  // namespace fulldeck::lint
