#include "job/redaction.h"

#include <pwd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "job/secret_names.h"
#include "job/shallow_json.h"
#include "wire/sha256.h"

namespace fulldeck::job {
namespace {

using Json = nlohmann::ordered_json;

// Shorter ones would take pieces out of other words.
constexpr std::size_t kShortestSecret = 6;
// A token of fewer is a number such as 1, and keeps nobody out.
constexpr std::size_t kShortestToken = 4;
constexpr std::size_t kShortestKey = 32;

// The shell's own variable; every other PWD is a password.
bool IsWorkingDirectory(std::string_view name, std::string_view value) {
  return (name == "PWD" || name == "OLDPWD") && (value.starts_with("/") || value.starts_with("~"));
}

bool HoldsSecret(SecretName kind, std::string_view value) {
  if (kind == SecretName::kNone || value.empty() || value == kRemoved) return false;
  return kind == SecretName::kSecret ? !IsNoValue(value) : !IsOrdinaryValue(value);
}

bool IsSecret(const std::string& name, const std::string& value) {
  return value.size() >= kShortestSecret && !IsWorkingDirectory(name, value) && HoldsSecret(JudgeName(name), value);
}

bool IsWord(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_' || character == '-';
}

bool IsSpace(char character) {
  return std::isspace(static_cast<unsigned char>(character)) != 0;
}

// Of services whose keys say what they are.
bool HasKeyPrefix(std::string_view word) {
  constexpr std::array kPrefixes{"sk-",   "hf_",  "ghp_", "gho_", "ghs_",  "github_pat_", "glpat-", "xoxb-", "xoxp-",
                                 "xoxa-", "AKIA", "ASIA", "AIza", "pypi-", "eyJ",         "LTAI",   "AKLT",  "AKID"};
  return word.size() >= 16 && std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                          [word](const char* prefix) { return word.starts_with(prefix); });
}

// Long, and changing between letters and digits as no name does. C++ names in a stack begin with _Z.
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

// A part of a text.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A text with parts of it replaced, one after the other: a file may have a hundred thousand of them, and to move the
// rest of it for each would take minutes.
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
  // What stands before the next part.
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

void ReplaceAll(std::string& text, std::string_view what, std::string_view with, bool whole_word) {
  if (what.empty() || text.find(what) == std::string::npos) return;
  Rewritten rewritten(text);
  for (std::size_t at = text.find(what); at != std::string::npos;) {
    const std::size_t end = at + what.size();
    rewritten.KeepUpTo(at);
    const std::string_view before = rewritten.kept();
    const bool inside =
        whole_word && ((!before.empty() && IsWord(before.back())) || (end < text.size() && IsWord(text[end])));
    if (!inside) rewritten.Replace({at, end}, with);
    at = text.find(what, inside ? at + 1 : end);
  }
  text = rewritten.Finish();
}

// "https://me:secret@host/x": what stands before the @ of the first part.
void RemoveUrlUsers(std::string& text) {
  Rewritten rewritten(text);
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at + 3)) {
    const std::size_t begin = at + 3;
    std::size_t end = begin;
    while (end < text.size() && !IsSpace(text[end]) && text[end] != '/' && text[end] != '"' && text[end] != '\'') ++end;
    const std::size_t users = std::string_view(text).substr(begin, end - begin).rfind('@');
    if (users == std::string_view::npos) continue;
    rewritten.Replace({begin, begin + users}, kRemoved);
  }
  text = rewritten.Finish();
}

// From "-----BEGIN … PRIVATE KEY-----" to its end, or to the end of the text.
void RemovePrivateKeys(std::string& text) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  constexpr std::string_view kEnd = "-----END ";
  constexpr std::string_view kDashes = "-----";
  Rewritten rewritten(text);
  for (std::size_t at = text.find(kBegin); at != std::string::npos;) {
    const std::size_t line = text.find(kDashes, at + kBegin.size());
    if (line == std::string::npos) break;
    if (std::string_view(text).substr(at, line - at).find("PRIVATE KEY") == std::string_view::npos) {
      at = text.find(kBegin, at + 1);
      continue;
    }
    const std::size_t last = text.find(kEnd, line);
    const std::size_t dashes = last == std::string::npos ? last : text.find(kDashes, last + kEnd.size());
    const std::size_t end = dashes == std::string::npos ? text.size() : dashes + kDashes.size();
    rewritten.Replace({at, end}, kRemoved);
    at = text.find(kBegin, end);
  }
  text = rewritten.Finish();
}

std::size_t EndOfLine(std::string_view text, std::size_t at) {
  return std::min(text.find('\n', at), text.size());
}

std::size_t SkipBlanks(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return at;
}

// A quote that begins at `at`, with the backslashes of an escaped one: " or \\". Empty when there is none.
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

// A sentence or a list goes on behind it.
bool IsChineseStop(std::string_view text, std::size_t at) {
  for (const std::string_view stop : {"，", "。", "；", "、", "）"}) {
    if (text.substr(at).starts_with(stop)) return true;
  }
  return false;
}

// Past the b of b'…' and the like of Python.
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

// Tokens in base64 for URLs may begin with a dash; behind the name of a secret such a word is taken for one, unless it
// is short as a flag.
bool MayBeSecretWithDash(std::string_view word) {
  return word.size() > 8 && word.starts_with("-") && !word.starts_with("--");
}

// Where the name of a secret stands in a text, without its quotes.
struct Name {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_flag = false;
  SecretName kind = SecretName::kMaybe;
};

// The name is the first of a pair: ('token', 'X'), get("token", "X").
bool OpensPair(std::string_view text, Name name, std::string_view closing) {
  if (name.begin <= closing.size() || text.substr(name.begin - closing.size(), closing.size()) != closing) return false;
  std::size_t before = name.begin - closing.size() - 1;
  if (before > 0 && std::string_view("bBrRuU").find(text[before]) != std::string_view::npos) --before;
  return text[before] == '(';
}

// Where the value of a name begins that stands in quotes and is not assigned at once: behind the bracket of
// environ['token'] = 'X', and behind the comma of a pair or of a flag in a list. Only another quoted text and, behind a
// name that says password, a number or what is assigned with '=': anything else may be code.
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
  // Behind a flag, another one: add_argument("--token", "-t").
  const std::string_view value = text.substr(begin + quote.size());
  const bool is_flag = value.starts_with("-") && !MayBeSecretWithDash(value.substr(0, value.find_first_of("\"' \n\\")));
  return sign == ',' && is_flag ? std::nullopt : std::optional(begin);
}

// The value that belongs to a name: behind an assignment on the same line, or behind a blank where the name is a flag.
// A quoted one goes to its closing quote, a list to its bracket, anything else to the next blank. Nothing when there is
// none.
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

// To the next blank, without what a sentence ends with.
Span WordAt(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && !IsSpace(text[end]) && !IsChineseStop(text, end)) ++end;
  while (end > begin && std::string_view(".,;:!?)\"'").find(text[end - 1]) != std::string_view::npos) --end;
  return {begin, end};
}

std::string_view In(std::string_view text, Span span) {
  return text.substr(span.begin, span.end - span.begin);
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

// Where the value of the name that ends at `at` begins, without its quote, if it is one of the usual shapes. At a
// glance.
std::size_t PeekValue(std::string_view text, std::size_t at) {
  at = SkipBlanks(text, at + QuoteAt(text, at).size());
  if (at < text.size()) at = SkipBlanks(text, SkipAssignment(text, at));
  return at + QuoteAt(text, at).size();
}

// AK and SK are also words of mathematics and short names of a socket. A key is long, and no call.
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

// Whether what stands behind a word in running text is an ordinary thing by its first characters. Before its end is
// looked for: a line may have hundreds of thousands of such words.
bool IsOrdinaryUse(std::string_view text, Name name) {
  const std::string word = Lower(text.substr(name.begin, name.end - name.begin));
  // "pass: test_1" is the word of a test.
  const bool assigned_at_once = text.substr(name.end).starts_with("=");
  if (word == "pass" || word == "sig") return !assigned_at_once;
  const std::string_view value = text.substr(PeekValue(text, name.end));
  if (word == "pwd") return value.starts_with("/") || value.starts_with("~");
  return !name.is_flag && IsKeyOfCloud(word) && !StartsLikeKey(value);
}

// Words one after the other.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  // Of the word from `begin` to `end`, and then on to the next.
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

// What is to be removed behind such a name; nothing: it may stay.
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

// Word by word: names of secrets with their values, and words that look like keys themselves.
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

// The name from kChineseNames that begins at `at`; empty when there is none.
std::string_view ChineseNameAt(std::string_view text, std::size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return {};
  for (const std::string_view name : kChineseNames) {
    if (text.substr(at).starts_with(name)) return name;
  }
  return {};
}

// The X of 密码（X）: on its own between the brackets, and no word.
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

// Addresses to which whoever knows them may write.
void RemoveHooks(std::string& text) {
  for (const std::string_view hook :
       {"hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/",
        "/open-apis/bot/v2/hook/", "/open-apis/bot/hook/", "oapi.dingtalk.com/robot/send?access_token=",
        "qyapi.weixin.qq.com/cgi-bin/webhook/send?key=", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/",
        "api.telegram.org/bot"}) {
    Rewritten rewritten(text);
    for (std::size_t at = text.find(hook); at != std::string::npos; at = text.find(hook, at)) {
      const std::size_t begin = at + hook.size();
      at = std::min(text.find_first_of(" \t\r\n\"'`<>()[]{},;\\&|", begin), text.size());
      if (at > begin) rewritten.Replace({begin, at}, kRemoved);
    }
    text = rewritten.Finish();
  }
}

// "user:secret@host" without a scheme, as in the settings of a proxy.
void RemoveBareUsers(std::string& text) {
  Rewritten rewritten(text);
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && !IsSpace(text[begin - 1]) &&
           std::string_view("\"'`/<>()[]{},;=@").find(text[begin - 1]) == std::string_view::npos) {
      --begin;
    }
    const std::size_t user = std::string_view(text).substr(begin, at - begin).find(':');
    const std::size_t colon = begin + user;
    if (user == std::string_view::npos || user == 0 || colon + 1 == at) continue;
    const std::string_view host = std::string_view(text).substr(at + 1);
    if (host.empty() || std::isalnum(static_cast<unsigned char>(host.front())) == 0 || host.starts_with("sha256:"))
      continue;
    // 12:30:01@node, cuda:0@node
    const bool numbers = text.find_first_not_of("0123456789:.-", begin) >= at;
    if (numbers || IsOrdinaryValue(std::string_view(text).substr(colon + 1, at - colon - 1))) continue;
    rewritten.Replace({begin, at}, kRemoved);
  }
  text = rewritten.Finish();
}

// Programs that take a password behind a flag which means other things elsewhere.
struct PasswordFlag {
  std::string_view program;
  std::string_view flag;
  std::string_view command;  // the flag's meaning begins behind this word; empty: at once
  bool separate = true;      // -p X
  bool attached = true;      // -pX
};
constexpr std::array kPasswordFlags{
    PasswordFlag{"sshpass", "-p", "", true, true},      PasswordFlag{"mysql", "-p", "", false, true},
    PasswordFlag{"mysqldump", "-p", "", false, true},   PasswordFlag{"mysqladmin", "-p", "", false, true},
    PasswordFlag{"mariadb", "-p", "", false, true},     PasswordFlag{"redis-cli", "-a", "", true, false},
    PasswordFlag{"docker", "-p", "login", true, true},  PasswordFlag{"podman", "-p", "login", true, true},
    PasswordFlag{"nerdctl", "-p", "login", true, true}, PasswordFlag{"buildah", "-p", "login", true, true},
    PasswordFlag{"skopeo", "-p", "login", true, true},  PasswordFlag{"helm", "-p", "login", true, true},
    PasswordFlag{"crane", "-p", "login", true, true},   PasswordFlag{"oc", "-p", "login", true, true},
    PasswordFlag{"az", "-p", "login", true, true},      PasswordFlag{"mongo", "-p", "", true, true},
    PasswordFlag{"mongosh", "-p", "", true, true},      PasswordFlag{"mongodump", "-p", "", true, true},
    PasswordFlag{"mongorestore", "-p", "", true, true}, PasswordFlag{"ipmitool", "-P", "", true, false}};

const PasswordFlag* PasswordFlagOf(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);
  const auto* const found = std::find_if(kPasswordFlags.begin(), kPasswordFlags.end(),
                                         [program](const PasswordFlag& each) { return each.program == program; });
  return found == kPasswordFlags.end() ? nullptr : found;
}

// The words of a line, or the arguments of a command, up to one of them. Constant time per word: a line may have
// hundreds of thousands.
class WordsBefore {
 public:
  // What closes here: the next word is no value of this one.
  void EndCommand() { last_ = {}; }

  // Bare: it stood in no quotes and brackets.
  void Add(std::string_view word, bool bare = true) {
    if (const PasswordFlag* const flag = PasswordFlagOf(word)) {
      flag_ = flag;
      only_flags_since_ = true;
      command_seen_ = flag->command.empty();
    } else if (word == "|" || word == "||" || word == "&&" || word.ends_with(";")) {
      flag_ = nullptr;
    } else if (!word.starts_with("-")) {
      only_flags_since_ = false;
      command_seen_ = command_seen_ || (flag_ != nullptr && word == flag_->command);
    }
    is_netrc_ = is_netrc_ || (bare && (word == "login" || word == "machine"));
    last_ = word;
    last_is_bare_ = bare;
    ++count_;
  }

  std::string_view last() const { return last_; }
  // Nothing but "password" so far.
  bool IsPasswordAlone() const { return count_ == 1 && IsPassword(); }

  // What stands in the place of the next word; nothing: it may stay.
  std::optional<std::string> WithoutPassword(std::string_view word) const {
    // Behind the program that sshpass starts, -p is a port.
    if (flag_ != nullptr && command_seen_ && (flag_->program != "sshpass" || only_flags_since_)) {
      const bool is_flag = word.starts_with("-") && !MayBeSecretWithDash(word);
      if (flag_->separate && last_ == flag_->flag && !is_flag) return kRemoved;
      if (flag_->attached && word.starts_with(flag_->flag) && word.size() > flag_->flag.size()) {
        return std::string(flag_->flag) + kRemoved;
      }
    }
    // curl -u user:secret
    const bool user = last_ == "-u" || last_ == "--user" || last_ == "--proxy-user";
    const std::size_t colon = word.find(':');
    if (user && colon != std::string_view::npos && !IsOrdinaryValue(word.substr(colon + 1))) return kRemoved;
    if (IsPassword() && is_netrc_) return kRemoved;
    return std::nullopt;
  }

 private:
  const PasswordFlag* flag_ = nullptr;  // of the last program that has one
  bool only_flags_since_ = false;
  bool command_seen_ = false;
  bool is_netrc_ = false;
  std::string_view last_;
  bool last_is_bare_ = false;
  std::size_t count_ = 0;

  bool IsPassword() const { return last_ == "password" && last_is_bare_; }
};

// A word of a line without the quotes, brackets and commas around it: Python prints commands as ['docker', 'login'].
Span CoreOf(std::string_view word) {
  const std::size_t begin = std::min(word.find_first_not_of("[(\"'`"), word.size());
  const std::size_t end = word.find_last_not_of("])\"'`,");
  return {begin, end == std::string_view::npos || end < begin ? begin : end + 1};
}

// Line by line, word by word: what a command or .netrc has at a place of its own.
std::string WithoutPlacedPasswords(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t line = EndOfLine(text, at);
    WordsBefore before;
    while (at < line) {
      const std::size_t begin = at;
      while (at < line && IsSpace(text[at])) ++at;
      kept += text.substr(begin, at - begin);
      const std::size_t word_begin = at;
      while (at < line && !IsSpace(text[at])) ++at;
      const std::string_view word = text.substr(word_begin, at - word_begin);
      const Span core = CoreOf(word);
      const std::string_view argument = In(word, core);
      // A line that is nothing but "password X" is of .netrc, too.
      const bool alone = before.IsPasswordAlone() && SkipBlanks(text, at) >= line;
      const auto shown = alone ? std::optional<std::string>(kRemoved) : before.WithoutPassword(argument);
      kept += word.substr(0, core.begin);
      kept += shown && !argument.empty() ? std::string_view(*shown) : argument;
      kept += word.substr(core.end);
      if (!word.empty()) before.Add(argument, argument.size() == word.size());
      // `mysql -p`
      if (core.begin == 0 && core.end < word.size()) before.EndCommand();
    }
    if (at < text.size()) kept += text[at++];
  }
  return kept;
}

// A secret key of AWS: 40 characters of base64, which '/' would cut into words.
void RemoveBase64Keys(std::string& text) {
  constexpr std::size_t kLength = 40;
  constexpr int kLeastChanges = 14;
  const auto is_base64 = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '/' || letter == '+';
  };
  const auto kind = [](char letter) {
    const auto character = static_cast<unsigned char>(letter);
    return std::isupper(character) != 0 ? 0 : std::islower(character) != 0 ? 1 : std::isdigit(character) != 0 ? 2 : 3;
  };
  Rewritten rewritten(text);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_base64(text[end])) ++end;
    int changes = 0;
    for (std::size_t i = at + 1; i < end; ++i) changes += kind(text[i]) != kind(text[i - 1]) ? 1 : 0;
    const bool part_of_path = at > 0 && (text[at - 1] == '.' || text[at - 1] == '_' || text[at - 1] == '-');
    if (end - at == kLength && changes >= kLeastChanges && !part_of_path) rewritten.Replace({at, end}, kRemoved);
    at = end + 1;
  }
  text = rewritten.Finish();
}

// Homes of others say their names.
void HideHomes(std::string& text) {
  Rewritten rewritten(text);
  for (std::size_t at = text.find("/home/"); at != std::string::npos; at = text.find("/home/", at + 6)) {
    if (at > 0 && (IsWord(text[at - 1]) || text[at - 1] == '.')) continue;
    std::size_t end = at + 6;
    while (end < text.size() && (IsWord(text[end]) || text[end] == '.')) ++end;
    rewritten.Replace({at + 6, end}, "user");
  }
  text = rewritten.Finish();
}

bool IsCommandLine(const Json& list) {
  bool has_flag = false;
  for (const Json& each : list) {
    if (!each.is_string()) return false;
    has_flag = has_flag || each.get_ref<const std::string&>().starts_with("-");
  }
  return has_flag;
}

// Everything that stands behind a name of that kind.
void RemoveBehind(Json& json, SecretName kind) {
  if (json.is_structured()) {
    for (auto& each : json.items()) RemoveBehind(each.value(), kind);
  } else if (!json.is_null() && !json.is_boolean()) {
    const std::string value = json.is_string() ? json.get<std::string>() : json.dump();
    if (HoldsSecret(kind, value)) json = kRemoved;
  }
}

void RedactJson(Json& json, const Redaction& redaction) {
  if (json.is_string()) {
    json = redaction.Text(json.get<std::string>());
  } else if (json.is_object()) {
    for (auto& member : json.items()) {
      const SecretName kind = JudgeName(member.key());
      if (member.value().is_string()) {
        member.value() = redaction.Variable(member.key(), member.value().get<std::string>());
        continue;
      }
      if (kind == SecretName::kSecret || !member.value().is_object()) RemoveBehind(member.value(), kind);
      RedactJson(member.value(), redaction);
    }
  } else if (json.is_array() && IsCommandLine(json)) {
    json = redaction.Arguments(json.get<std::vector<std::string>>());
  } else if (json.is_array()) {
    for (Json& each : json) RedactJson(each, redaction);
  }
}

}  // namespace

SecretMarks MarksOfSecrets(const base::Environment& environment) {
  SecretMarks marks;
  std::array<std::uint8_t, 16> chance{};
  // Without a salt the marks could be looked up: rather none.
  if (getrandom(chance.data(), chance.size(), 0) != static_cast<ssize_t>(chance.size())) return marks;
  for (const std::uint8_t byte : chance) {
    marks.salt += "0123456789abcdef"[byte / 16];
    marks.salt += "0123456789abcdef"[byte % 16];
  }
  for (const auto& variable : environment.all()) {
    if (!IsSecret(variable.first, variable.second)) continue;
    marks.marks.push_back(wire::HexOf(wire::HmacSha256(marks.salt, variable.second)));
  }
  return marks;
}

Redaction::Redaction(std::string home, std::string user) : home_(std::move(home)), user_(std::move(user)) {
  while (home_.size() > 1 && home_.back() == '/') home_.pop_back();
  if (home_ == "/" || !home_.starts_with("/")) home_.clear();
  if (user_ == "root" || user_.size() < 3) user_.clear();
}

Redaction Redaction::OfThisProcess(const base::Environment& environment) {
  const passwd* const who = getpwuid(getuid());
  Redaction redaction(environment.Get("HOME").value_or(who != nullptr ? who->pw_dir : ""),
                      who != nullptr ? who->pw_name : environment.Get("USER").value_or(""));
  redaction.Learn(environment);
  return redaction;
}

void Redaction::Learn(const base::Environment& environment) {
  for (const auto& variable : environment.all()) {
    if (IsSecret(variable.first, variable.second)) secrets_.push_back(variable.second);
  }
  std::sort(secrets_.begin(), secrets_.end(), [](const std::string& one, const std::string& other) {
    return one.size() != other.size() ? one.size() > other.size() : one < other;
  });
  secrets_.erase(std::unique(secrets_.begin(), secrets_.end()), secrets_.end());
}

void Redaction::LearnSecret(const std::string& secret) {
  if (secret.size() >= kShortestToken) secrets_.insert(secrets_.begin(), secret);
}

void Redaction::Learn(SecretMarks marks) {
  marks_ = std::move(marks);
}

// Whole words, and what stands behind the first '=' or ':' of one.
std::string Redaction::WithoutMarked(std::string text) const {
  if (marks_.marks.empty()) return text;
  const auto is_marked = [this](std::string_view word) {
    if (word.size() < kShortestSecret || word.size() > 4096) return false;
    const std::string mark = wire::HexOf(wire::HmacSha256(marks_.salt, word));
    return std::find(marks_.marks.begin(), marks_.marks.end(), mark) != marks_.marks.end();
  };
  const auto ends_word = [](char character) {
    return IsSpace(character) || std::string_view("\"'`,;()[]{}<>").find(character) != std::string_view::npos;
  };
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !ends_word(text[end])) ++end;
    std::string_view word = std::string_view(text).substr(at, end - at);
    // A sentence may end with it.
    const std::size_t behind = word.find_last_not_of(".:!?\\") + 1;
    const std::string_view tail = word.substr(behind);
    const std::string_view core = word.substr(0, behind);
    const std::size_t sign = core.find_first_of("=:");
    if (is_marked(word)) {
      kept += kRemoved;
    } else if (is_marked(core)) {
      (kept += kRemoved) += tail;
    } else if (sign != std::string_view::npos &&
               (is_marked(core.substr(sign + 1)) || is_marked(word.substr(sign + 1)))) {
      ((kept += core.substr(0, sign + 1)) += kRemoved) += tail;
    } else {
      kept += word;
    }
    at = end;
    if (at < text.size()) kept += text[at++];
  }
  return kept;
}

bool Redaction::IsSecretName(std::string_view name) {
  return JudgeName(name) != SecretName::kNone;
}

std::string Redaction::Variable(std::string_view name, std::string_view value) const {
  const bool secret = !IsWorkingDirectory(name, value) && HoldsSecret(JudgeName(name), value);
  return secret ? kRemoved : Text(value);
}

std::string Redaction::Text(std::string_view text) const {
  std::string shown(text);
  for (const std::string& secret : secrets_) ReplaceAll(shown, secret, kRemoved, secret.size() < kShortestSecret);
  shown = WithoutMarked(std::move(shown));
  RemovePrivateKeys(shown);
  RemoveHooks(shown);
  RemoveUrlUsers(shown);
  shown = WithoutPlacedPasswords(shown);
  shown = WithoutNamedInChinese(shown);
  RemoveBase64Keys(shown);
  shown = WithoutNamedOrRandom(shown);
  RemoveBareUsers(shown);
  if (!home_.empty()) ReplaceAll(shown, home_, "~", true);
  HideHomes(shown);
  ReplaceAll(shown, user_, "user", true);
  return shown;
}

std::string Redaction::JsonText(std::string_view text) const {
  Json json = ParseShallow(text);
  if (json.is_discarded()) return Text(text);
  RedactJson(json, *this);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> Redaction::Arguments(const std::vector<std::string>& arguments) const {
  std::vector<std::string> shown;
  WordsBefore before;
  SecretName follows = SecretName::kNone;
  for (const std::string& argument : arguments) {
    const auto equals = argument.find('=');
    const bool is_flag = argument.starts_with("-");
    const std::string name = argument.substr(0, equals);
    // A flag, or a setting such as db.password=…; not a sentence or a script that has a '=' somewhere.
    const bool is_setting = equals != std::string::npos && name.find_first_of(" \t\n;") == std::string::npos;
    if ((!is_flag || MayBeSecretWithDash(argument)) && HoldsSecret(follows, argument)) {
      shown.emplace_back(kRemoved);
    } else if (const auto without = before.WithoutPassword(argument)) {
      shown.push_back(*without);
    } else if (is_setting && HoldsSecret(JudgeName(name), std::string_view(argument).substr(equals + 1))) {
      shown.push_back(name + "=" + kRemoved);
    } else {
      shown.push_back(Text(argument));
    }
    if (is_flag) {
      follows = equals == std::string::npos ? JudgeName(argument) : SecretName::kNone;
    } else if (!(before.last().ends_with("s") && before.last().starts_with("-"))) {
      // --tokens A B
      follows = SecretName::kNone;
    }
    before.Add(argument);
  }
  return shown;
}

}  // namespace fulldeck::job
