#include "job/redaction/named_secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "job/launch/text_spans.h"
#include "job/redaction/redaction.h"
#include "job/redaction/secret_names.h"

namespace fulldeck::job {
namespace {

constexpr std::size_t kShortestKey = 32;

// Of services whose keys have a recognizable prefix.
bool HasKeyPrefix(std::string_view word) {
  constexpr std::array kPrefixes{"sk-",   "hf_",  "ghp_", "gho_", "ghs_",  "github_pat_", "glpat-", "xoxb-", "xoxp-",
                                 "xoxa-", "AKIA", "ASIA", "AIza", "pypi-", "eyJ",         "LTAI",   "AKLT",  "AKID"};
  return word.size() >= 16 && std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                          [word](const char* prefix) { return word.starts_with(prefix); });
}

// Long, and alternating between letters and digits more often than names do. C++ names in a stack begin with _Z.
bool LooksRandom(std::string_view word) {
  if (word.size() < kShortestKey || word.starts_with("_Z")) return false;
  int changes = 0;
  for (std::size_t i = 1; i < word.size(); ++i) {
    const bool one = std::isdigit(static_cast<unsigned char>(word[i - 1])) != 0;
    const bool other = std::isdigit(static_cast<unsigned char>(word[i])) != 0;
    if (one != other && word[i] != '_' && word[i] != '-') ++changes;
  }
  return changes >= 6;
}

// A quote that begins at `at`, with the backslashes of an escaped one: " or \\". Empty if there is none.
std::string_view QuoteAt(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && text[end] == '\\') ++end;
  if (end >= text.size() || (text[end] != '"' && text[end] != '\'')) return {};
  return text.substr(at, end + 1 - at);
}

// Past '=', ':', "=>", ":=" or a full-width sign; `at` itself if there is none.
std::size_t SkipAssignment(std::string_view text, std::size_t at) {
  for (const std::string_view sign : {"=>", ":=", "==", "=", ":", "：", "＝"}) {
    if (text.substr(at).starts_with(sign)) return at + sign.size();
  }
  return at;
}

// Punctuation after which a sentence or a list continues.
bool IsChineseStop(std::string_view text, std::size_t at) {
  for (const std::string_view stop : {"，", "。", "；", "、", "）"}) {
    if (text.substr(at).starts_with(stop)) return true;
  }
  return false;
}

// Past the b of b'…' and similar prefixes of Python.
std::size_t SkipStringPrefix(std::string_view text, std::size_t at) {
  const bool has_prefix = at + 1 < text.size() && std::string_view("bBrRuUfF").find(text[at]) != std::string_view::npos;
  return has_prefix && (text[at + 1] == '"' || text[at + 1] == '\'') ? at + 1 : at;
}

// To the same quote, or to the end of the line.
Span QuotedValue(std::string_view text, std::size_t begin, std::string_view quote) {
  std::size_t at = begin;
  for (; at < text.size() && text[at] != '\n'; ++at) {
    const bool escapes = quote.size() == 1 && text[at] == '\\' && at + 1 < text.size() && text[at + 1] != '\n';
    if (escapes) {
      ++at;
    } else if (text.substr(at).starts_with(quote)) {
      break;
    }
  }
  return {begin, at};
}

// The position of a secret's name in a text, without its quotes.
struct Name {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_flag = false;
  SecretName kind = SecretName::kMaybe;
};

// The name is the first element of a pair: ('token', 'X'), get("token", "X").
bool OpensPair(std::string_view text, Name name, std::string_view closing) {
  if (name.begin <= closing.size() || text.substr(name.begin - closing.size(), closing.size()) != closing) return false;
  std::size_t before = name.begin - closing.size() - 1;
  if (before > 0 && std::string_view("bBrRuU").find(text[before]) != std::string_view::npos) --before;
  return text[before] == '(';
}

// The start of the value of a quoted name without a direct assignment: after the bracket of environ['token'] = 'X',
// and after the comma of a pair or of a flag in a list. Accepts only another quoted string and, after a name that
// means password, also a number or a value that is assigned with '='. Anything else may be code.
std::optional<std::size_t> ValueBehindQuotedName(std::string_view text, Name name, std::string_view closing) {
  std::size_t at = name.end + closing.size();
  const bool in_brackets = at < text.size() && (text[at] == ']' || text[at] == ')');
  std::size_t begin = SkipBlanks(text, in_brackets ? at + 1 : at);
  if (begin >= text.size()) return std::nullopt;
  const char sign = text[begin];
  if (in_brackets) {
    at = begin;
    begin = SkipAssignment(text, at);
    if (begin == at) return std::nullopt;
  } else if (sign == ',' && (name.is_flag || OpensPair(text, name, closing))) {
    ++begin;
  } else {
    return std::nullopt;
  }
  begin = SkipBlanks(text, begin);
  if (begin >= text.size() || text[begin] == '\n') return std::nullopt;
  const std::string_view quote = QuoteAt(text, SkipStringPrefix(text, begin));
  if (quote.empty()) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
    return name.kind == SecretName::kSecret && (digit || sign == '=') ? std::optional(begin) : std::nullopt;
  }
  // Skip a flag that follows a flag: add_argument("--token", "-t").
  const std::string_view value = text.substr(begin + quote.size());
  const bool is_flag = value.starts_with("-") && !MayBeSecretWithDash(value.substr(0, value.find_first_of("\"' \n\\")));
  return sign == ',' && is_flag ? std::nullopt : std::optional(begin);
}

// The value of a name: after an assignment on the same line, or after a blank if the name is a flag. A quoted value
// extends to its closing quote, a list to its bracket, anything else to the next blank. nullopt if there is no value.
std::optional<Span> ValueBehind(std::string_view text, Name name, bool whole_line) {
  const std::string_view closing = QuoteAt(text, name.end);
  const std::size_t behind_name = name.end + closing.size();
  const std::size_t sign = SkipBlanks(text, behind_name);
  std::size_t begin = sign < text.size() ? SkipAssignment(text, sign) : sign;
  const auto behind_quotes = closing.empty() ? std::nullopt : ValueBehindQuotedName(text, name, closing);
  if (behind_quotes) begin = *behind_quotes;
  const bool by_blank = begin == sign;
  const auto flag_follows = [&] {
    const std::string_view word = text.substr(sign, text.find_first_of(" \t\n", sign) - sign);
    return word.starts_with("-") && !MayBeSecretWithDash(word);
  };
  if (by_blank && (!name.is_flag || sign == behind_name || flag_follows())) return std::nullopt;
  begin = SkipBlanks(text, begin);
  if (begin >= text.size() || text[begin] == '\n' || text[begin] == '{') return std::nullopt;
  begin = SkipStringPrefix(text, begin);
  if (const std::string_view quote = QuoteAt(text, begin); !quote.empty()) {
    return QuotedValue(text, begin + quote.size(), quote);
  }
  if (text[begin] == '[') return Span{begin + 1, std::min(text.find_first_of("]\n", begin), text.size())};
  std::size_t end = begin;
  const auto ends = [&](std::size_t at) {
    const char letter = text[at];
    if (whole_line) return std::string_view("\"'\\\n").find(letter) != std::string_view::npos;
    return IsSpace(letter) || IsChineseStop(text, at) ||
           (!closing.empty() && (letter == ',' || letter == '}' || letter == ']'));
  };
  while (end < text.size() && !ends(end)) ++end;
  if (end == begin) return std::nullopt;
  return Span{begin, end};
}

// The X of <password>X</password>.
std::optional<Span> ValueBehindTag(std::string_view text, Name name) {
  if (name.begin == 0 || text[name.begin - 1] != '<' || !text.substr(name.end).starts_with(">")) return std::nullopt;
  const std::size_t begin = name.end + 1;
  const std::size_t end = text.find_first_of("<\n", begin);
  if (end == std::string_view::npos || end == begin || IsSpace(text[begin])) return std::nullopt;
  return text.substr(end).starts_with("</") ? std::optional(Span{begin, end}) : std::nullopt;
}

// To the next blank, without the punctuation that ends a sentence.
Span WordAt(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && !IsSpace(text[end]) && !IsChineseStop(text, end)) ++end;
  while (end > begin && std::string_view(".,;:!?)\"'").find(text[end - 1]) != std::string_view::npos) --end;
  return {begin, end};
}

// The X of "password is X" and "password is: X".
std::optional<Span> ValueBehindIs(std::string_view text, Name name) {
  const std::size_t is = SkipBlanks(text, name.end);
  if (is == name.end || !text.substr(is).starts_with("is")) return std::nullopt;
  const std::size_t sign = SkipBlanks(text, is + 2);
  if (sign >= text.size()) return std::nullopt;
  const std::size_t begin = SkipBlanks(text, SkipAssignment(text, sign));
  const bool assigned = begin != sign;
  if (begin == is + 2) return std::nullopt;
  const std::string_view quote = QuoteAt(text, begin);
  const Span value = quote.empty() ? WordAt(text, begin) : QuotedValue(text, begin + quote.size(), quote);
  if (name.kind == SecretName::kSecret && (assigned || !quote.empty())) return value;
  // "the next token is part1"
  const std::size_t shortest = name.kind == SecretName::kSecret ? 0 : 8;
  const bool is_secret = value.end - value.begin >= shortest && LooksLikeSecret(In(text, value));
  return is_secret ? std::optional(value) : std::nullopt;
}

// The X of "Bearer X": "bearer of" and "Bearer authentication" are words, realm="…" is a setting.
std::optional<Span> ValueBehindBearer(std::string_view text, std::size_t at) {
  constexpr std::size_t kShortestBearer = 8;
  constexpr std::size_t kLongName = 16;
  const std::size_t begin = SkipBlanks(text, at);
  std::size_t end = begin;
  while (end < text.size() && (IsWord(text[end]) || std::string_view(".~+/").find(text[end]) != std::string_view::npos))
    ++end;
  const std::size_t padding = std::min(text.find_first_not_of('=', end), text.size());
  if (padding > end && padding < text.size() && (IsWord(text[padding]) || text[padding] == '"')) return std::nullopt;
  while (end > begin && text[end - 1] == '.') --end;
  const std::string_view word = In(text, {begin, end});
  if (begin == at || word.size() < kShortestBearer) return std::nullopt;
  const bool only_letters =
      std::all_of(word.begin(), word.end(), [](unsigned char letter) { return std::isalpha(letter) != 0; });
  if (!LooksLikeSecret(word) && (only_letters || word.size() < kLongName)) return std::nullopt;
  return Span{begin, end};
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return lower;
}

// Quickly finds the start of the value of the name that ends at `at`, without its quote, for the usual forms.
std::size_t PeekValue(std::string_view text, std::size_t at) {
  at = SkipBlanks(text, at + QuoteAt(text, at).size());
  if (at < text.size()) at = SkipBlanks(text, SkipAssignment(text, at));
  return at + QuoteAt(text, at).size();
}

// AK and SK also occur in mathematics and as short names of a socket. A key is long, and not followed by a call.
bool IsKeyOfCloud(std::string_view name) {
  if (!name.ends_with("ak") && !name.ends_with("sk")) return false;
  return name.size() == 2 || name[name.size() - 3] == '_' || name[name.size() - 3] == '-';
}

bool StartsLikeKey(std::string_view text) {
  constexpr std::size_t kShortestCloudKey = 8;
  constexpr std::size_t kLongestCall = 64;
  std::size_t end = 0;
  while (end < text.size() && end < kLongestCall && (IsWord(text[end]) || text[end] == '+' || text[end] == '/')) ++end;
  return end >= kShortestCloudKey && (end == text.size() || text[end] != '(');
}

// Whether the first characters after a word in running text show an ordinary use. This check comes before the search
// for the value's end, because a line may have hundreds of thousands of such words.
bool IsOrdinaryUse(std::string_view text, Name name) {
  const std::string word = Lower(text.substr(name.begin, name.end - name.begin));
  // "pass: test_1" is the output of a test.
  const bool assigned_at_once = text.substr(name.end).starts_with("=");
  if (word == "pass" || word == "sig") return !assigned_at_once;
  const std::string_view value = text.substr(PeekValue(text, name.end));
  if (word == "pwd") return value.starts_with("/") || value.starts_with("~");
  return !name.is_flag && IsKeyOfCloud(word) && !StartsLikeKey(value);
}

// Visits words in order.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  // Judges the word from `begin` to `end` and moves on to the next.
  Name NameAt(std::size_t begin, std::size_t end) {
    const std::string_view word = text_.substr(begin, end - begin);
    // --wandb.api_key
    const bool goes_on = begin > 0 && end_ == begin - 1 && text_[end_] == '.';
    const bool by_blank = begin > 0 && end_ == begin - 1 && text_[end_] == ' ';
    is_flag_ = word.starts_with("-") || (goes_on && is_flag_);
    Name name{begin, end, is_flag_, JudgeWord(word)};
    if (name.kind == SecretName::kNone && is_flag_) name.kind = JudgeName(word);
    if (name.kind == SecretName::kNone && by_blank) name.kind = JudgePair(last_, word);
    last_ = word;
    end_ = end;
    return name;
  }

 private:
  std::string_view text_;
  std::string_view last_;
  std::size_t end_ = 0;
  bool is_flag_ = false;
};

// The range to remove after such a name; nullopt: nothing.
std::optional<Span> SecretBehind(std::string_view text, Name name) {
  if (IsOrdinaryUse(text, name)) return std::nullopt;
  const std::string word = Lower(text.substr(name.begin, name.end - name.begin));
  const bool whole_line = word.ends_with("authorization") || word.ends_with("cookie");
  std::optional<Span> value = ValueBehind(text, name, whole_line);
  if (!value) value = ValueBehindTag(text, name);
  if (!value) value = word == "bearer" ? ValueBehindBearer(text, name.end) : ValueBehindIs(text, name);
  if (!value || !HoldsSecret(name.kind, In(text, *value))) return std::nullopt;
  // A signature in a URL is long.
  if (word == "sig" && value->end - value->begin < 16) return std::nullopt;
  return value;
}

// The name from kChineseNames that begins at `at`; empty if there is none.
std::string_view ChineseNameAt(std::string_view text, std::size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return {};
  for (const std::string_view name : kChineseNames) {
    if (text.substr(at).starts_with(name)) return name;
  }
  return {};
}

// The X of 密码（X）: the only content of the brackets, and not a word.
std::optional<Span> ValueInBrackets(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  for (const std::string_view bracket : {"（", "("}) {
    if (text.substr(at).starts_with(bracket)) begin = at + bracket.size();
  }
  if (begin == at) return std::nullopt;
  std::size_t end = begin;
  while (end < text.size() && text[end] > ' ' && text[end] <= '~' && text[end] != ')') ++end;
  const bool closes = text.substr(end).starts_with("）") || text.substr(end).starts_with(")");
  const Span value{begin, end};
  return closes && LooksLikeSecret(In(text, value)) ? std::optional(value) : std::nullopt;
}

std::optional<Span> SecretBehindChinese(std::string_view text, Name name) {
  if (const auto value = ValueInBrackets(text, SkipBlanks(text, name.end))) return value;
  std::size_t end = name.end;
  // "密码是 X", "密码为：X": is.
  for (const std::string_view is : {"是", "为", "為"}) {
    if (text.substr(name.end).starts_with(is)) end += is.size();
  }
  if (const auto value = ValueBehind(text, {name.begin, end, false, name.kind}, false)) {
    return HoldsSecret(SecretName::kMaybe, In(text, *value)) ? value : std::nullopt;
  }
  const std::size_t next = SkipBlanks(text, end);
  const bool follows_is = end != name.end && next < text.size() && IsWord(text[next]);
  if (!follows_is && next == end) return std::nullopt;
  const Span word = WordAt(text, next);
  // "密码 X", but not "密码 error"
  const bool is_secret = follows_is ? HoldsSecret(SecretName::kMaybe, In(text, word)) : LooksLikeSecret(In(text, word));
  return is_secret ? std::optional(word) : std::nullopt;
}

}  // namespace

std::string WithoutNamedOrRandom(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  Words words(text);
  for (std::size_t at = 0; at < text.size();) {
    if (!IsWord(text[at])) {
      kept += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && IsWord(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    if (HasKeyPrefix(word) || LooksRandom(word)) {
      kept += kRemoved;
      at = end;
      continue;
    }
    kept += word;
    const Name name = words.NameAt(at, end);
    at = end;
    if (name.kind == SecretName::kNone) continue;
    const auto value = SecretBehind(text, name);
    if (!value) continue;
    kept += text.substr(at, value->begin - at);
    kept += kRemoved;
    at = value->end;
  }
  return kept;
}

std::string WithoutNamedInChinese(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view name = ChineseNameAt(text, at);
    if (name.empty()) {
      kept += text[at++];
      continue;
    }
    kept += name;
    const auto value = SecretBehindChinese(text, {at, at + name.size()});
    at += name.size();
    if (!value) continue;
    kept += text.substr(at, value->begin - at);
    kept += kRemoved;
    at = value->end;
  }
  return kept;
}

}  // namespace fulldeck::job
