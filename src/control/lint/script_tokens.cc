#include "lint/script_tokens.h"

#include <algorithm>
#include <array>

namespace fulldeck::lint {
namespace {

// Strings within expressions of f-strings, and so on: deeper than in any real code.
constexpr int kMaxNesting = 16;

bool IsNameStart(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || byte >= 0x80;
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsNameCharacter(char c) {
  return IsNameStart(c) || IsDigit(c);
}

// The prefix of a string: at most two letters of rbuft.
bool IsStringPrefix(std::string_view word) {
  return word.size() <= 2 &&
         std::all_of(word.begin(), word.end(), [](char c) { return std::string_view("rRbBuUfFtT").find(c) < 10; });
}

constexpr std::array<std::string_view, 24> kLongOperators = {"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>",
                                                             "<<",  "<=",  ">=",  "==",  "!=",  "->", "+=", "-=",
                                                             "*=",  "/=",  "%=",  "&=",  "|=",  "^=", ":=", "@="};

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  std::vector<Token> Read() {
    if (source_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;
    while (at_ < source_.size()) Step();
    EndLine();
    return std::move(tokens_);
  }

 private:
  char Now(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void Step() {
    const char c = Now();
    if (c == '\n' || c == '\r') {
      if (c == '\r' && Now(1) == '\n') ++at_;
      ++at_;
      if (depth_ == 0) EndLine();
      ++line_;
      column_ = 0;
      return;
    }
    if (c == ' ' || c == '\t' || c == '\f') {
      column_ = c == '\t' ? (column_ / 8 + 1) * 8 : c == ' ' ? column_ + 1 : 0;
      ++at_;
      return;
    }
    if (c == '#') {
      while (at_ < source_.size() && Now() != '\n' && Now() != '\r') ++at_;
      return;
    }
    if (c == '\\' && (Now(1) == '\n' || Now(1) == '\r')) {
      at_ += Now(1) == '\r' && Now(2) == '\n' ? 3 : 2;
      ++line_;
      return;
    }
    Word(c);
  }

  void Word(char c) {
    if (c == '"' || c == '\'') return String(at_);
    if (IsDigit(c) || (c == '.' && IsDigit(Now(1)))) return Number();
    if (!IsNameStart(c)) return Operator();
    const std::size_t begin = at_;
    while (IsNameCharacter(Now()) && at_ < source_.size()) ++at_;
    const bool quoted = Now() == '"' || Now() == '\'';
    if (quoted && IsStringPrefix(source_.substr(begin, at_ - begin))) return String(begin);
    Add(TokenKind::kName, begin, line_);
  }

  void Number() {
    const std::size_t begin = at_;
    while (at_ < source_.size()) {
      const bool exponent = (Now() == '+' || Now() == '-') && (source_[at_ - 1] == 'e' || source_[at_ - 1] == 'E') &&
                            source_.substr(begin, 2) != "0x" && at_ > begin;
      if (!IsNameCharacter(Now()) && Now() != '.' && !exponent) break;
      ++at_;
    }
    Add(TokenKind::kNumber, begin, line_);
  }

  void Operator() {
    const std::size_t begin = at_;
    const auto longest = std::find_if(kLongOperators.begin(), kLongOperators.end(),
                                      [&](std::string_view word) { return source_.substr(at_, word.size()) == word; });
    at_ += longest != kLongOperators.end() ? longest->size() : 1;
    const char c = source_[begin];
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
    Add(TokenKind::kOperator, begin, line_);
  }

  // at_ is on the first quote.
  void String(std::size_t begin) {
    const int line = line_;
    const std::string_view prefix = source_.substr(begin, at_ - begin);
    const bool formatted = prefix.find_first_of("fFtT") != std::string_view::npos;
    std::size_t content = 0;
    std::size_t content_end = 0;
    SkipString(formatted, 0, &content, &content_end);
    Add(TokenKind::kString, begin, line);
    tokens_.back().content = source_.substr(content, content_end - content);
    tokens_.back().formatted = formatted;
  }

  // From the first quote to after the last one. An unterminated string ends with its line or with the file.
  void SkipString(bool formatted, int nesting, std::size_t* content, std::size_t* content_end) {
    const char quote = Now();
    const bool triple = Now(1) == quote && Now(2) == quote;
    at_ += triple ? 3 : 1;
    *content = at_;
    int braces = 0;
    while (at_ < source_.size()) {
      const char c = Now();
      if ((c == '\n' || c == '\r') && !triple) break;
      if (c == '\n' || (c == '\r' && Now(1) != '\n')) ++line_;
      if (c == '\\' && braces == 0) {
        if (Now(1) == '\n') ++line_;
        at_ = std::min(at_ + 2, source_.size());
        continue;
      }
      if (c == quote && braces == 0 && (!triple || (Now(1) == quote && Now(2) == quote))) {
        *content_end = at_;
        at_ += triple ? 3 : 1;
        return;
      }
      if (formatted && c == '{') {
        if (braces == 0 && Now(1) == '{') {
          ++at_;
        } else {
          ++braces;
        }
      } else if (formatted && c == '}' && braces > 0) {
        --braces;
      } else if (braces > 0 && (c == '"' || c == '\'') && nesting < kMaxNesting) {
        std::size_t inner = 0;
        std::size_t inner_end = 0;
        const bool inner_formatted = IsNameStart(source_[at_ - 1]) && (source_[at_ - 1] | 0x20) == 'f';
        SkipString(inner_formatted, nesting + 1, &inner, &inner_end);
        continue;
      }
      ++at_;
    }
    *content_end = at_;
  }

  void Add(TokenKind kind, std::size_t begin, int line) {
    Token token;
    token.kind = kind;
    token.text = source_.substr(begin, at_ - begin);
    token.line = line;
    token.column = column_;
    tokens_.push_back(token);
  }

  void EndLine() {
    if (tokens_.empty() || tokens_.back().kind == TokenKind::kNewline) return;
    Token token;
    token.line = line_;
    tokens_.push_back(token);
  }

  const std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  int column_ = 0;  // of whitespace at the start of a line
  int depth_ = 0;   // of brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Reader(source).Read();
}

std::vector<std::string_view> NamesInside(const Token& formatted) {
  std::vector<std::string_view> names;
  if (!formatted.formatted) return names;
  const std::string_view text = formatted.content;
  int braces = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') {
      if (braces == 0 && i + 1 < text.size() && text[i + 1] == '{') {
        ++i;
      } else {
        ++braces;
      }
    } else if (text[i] == '}') {
      braces = std::max(0, braces - 1);
    } else if (braces > 0 && IsNameStart(text[i])) {
      const std::size_t begin = i;
      while (i < text.size() && IsNameCharacter(text[i])) ++i;
      names.push_back(text.substr(begin, i - begin));
      --i;
    }
  }
  return names;
}

}  // namespace fulldeck::lint
