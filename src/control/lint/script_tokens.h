// Splits Python source into tokens: names, numbers, strings, operators, each with its line. Comments, whitespace and
// the contents of strings are never tokens. Handles everything that decides where a token ends: string prefixes and
// triple quotes, expressions in f-strings, brackets, joined lines, indentation.
//
// Accepts any bytes: invalid Python also gives tokens, and never an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::lint {

enum class TokenKind {
  kName,      // including keywords
  kNumber,    //
  kString,    // the complete literal: prefix, quotes, text
  kOperator,  // including brackets and punctuation
  kNewline,   // the end of a logical line
};

struct Token {
  TokenKind kind = TokenKind::kNewline;
  std::string_view text;     // part of the source, which must outlive it; empty for kNewline
  std::string_view content;  // of a string: the text between the quotes, as written
  bool formatted = false;    // an f-string: {…} in it are expressions
  int line = 0;              // from 1
  int column = 0;            // of a line's first token: its indentation; a tab advances to the next multiple of 8

  bool Is(std::string_view word) const { return kind != TokenKind::kString && text == word; }
  bool IsName() const { return kind == TokenKind::kName; }
};

// Every logical line ends with a kNewline; empty lines give no tokens.
std::vector<Token> Tokenize(std::string_view source);

// The names inside the {…} of an f-string, in order.
std::vector<std::string_view> NamesInside(const Token& formatted);

}  // namespace fulldeck::lint
