// Ranges of a text, and replacing some of them: shared by the redaction sources. Pure.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

namespace fulldeck::job {

// A range of a text.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

inline std::string_view In(std::string_view text, Span span) {
  return text.substr(span.begin, span.end - span.begin);
}

inline bool IsWord(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_' || character == '-';
}

inline bool IsSpace(char character) {
  return std::isspace(static_cast<unsigned char>(character)) != 0;
}

inline std::size_t EndOfLine(std::string_view text, std::size_t at) {
  return std::min(text.find('\n', at), text.size());
}

inline std::size_t SkipBlanks(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return at;
}

// A text in which ranges are replaced in increasing order. A file may have a hundred thousand of them; moving the
// rest of the text for each would take minutes.
class Rewritten {
 public:
  explicit Rewritten(std::string_view text) : text_(text) {}

  void Replace(Span part, std::string_view with) {
    KeepUpTo(part.begin);
    kept_ += with;
    at_ = part.end;
  }
  void KeepUpTo(std::size_t end) {
    kept_ += text_.substr(at_, end - at_);
    at_ = end;
  }
  // The output before the next range.
  std::string_view kept() const { return kept_; }
  std::string Finish() {
    KeepUpTo(text_.size());
    return std::move(kept_);
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::string kept_;
};

}  // namespace fulldeck::job
