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
  constexpr std::array kPrefixes{"sk-",   "hf_",   "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-",
                                 "xoxp-", "xoxa-", "AKIA", "ASIA", "AIza", "pypi-",       "eyJ"};
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

void ReplaceAll(std::string& text, std::string_view what, std::string_view with, bool whole_word) {
  if (what.empty()) return;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    const std::size_t end = at + what.size();
    const bool inside = whole_word && ((at > 0 && IsWord(text[at - 1])) || (end < text.size() && IsWord(text[end])));
    if (inside) {
      ++at;
      continue;
    }
    text.replace(at, what.size(), with);
    at += with.size();
  }
}

// "https://me:secret@host/x": what stands before the @ of the first part.
void RemoveUrlUsers(std::string& text) {
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at + 3)) {
    const std::size_t begin = at + 3;
    std::size_t end = begin;
    while (end < text.size() && !IsSpace(text[end]) && text[end] != '/' && text[end] != '"' && text[end] != '\'') ++end;
    const std::size_t users = std::string_view(text).substr(begin, end - begin).rfind('@');
    if (users == std::string_view::npos) continue;
    text.replace(begin, users, kRemoved);
  }
}

// From "-----BEGIN … PRIVATE KEY-----" to its end, or to the end of the text.
void RemovePrivateKeys(std::string& text) {
  for (std::size_t at = text.find("-----BEGIN "); at != std::string::npos; at = text.find("-----BEGIN ", at + 1)) {
    const std::size_t line = text.find("-----", at + 11);
    if (line == std::string::npos || text.substr(at, line - at).find("PRIVATE KEY") == std::string::npos) continue;
    const std::size_t last = text.find("-----END ", line);
    const std::size_t end = last == std::string::npos ? std::string::npos : text.find("-----", last + 9);
    text.replace(at, end == std::string::npos ? std::string::npos : end + 5 - at, kRemoved);
  }
}

// A part of a text.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

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

// To the same quote, or to the end of the line.
Span QuotedValue(std::string_view text, std::size_t begin, std::string_view quote) {
  const std::size_t line = EndOfLine(text, begin);
  for (std::size_t at = begin; at < line; ++at) {
    if (quote.size() == 1 && text[at] == '\\') {
      ++at;
    } else if (text.substr(at).starts_with(quote)) {
      return {begin, at};
    }
  }
  return {begin, line};
}

// Tokens in base64 for URLs may begin with a dash; behind the name of a secret such a word is taken for one, unless it
// is short as a flag.
bool MayBeSecretWithDash(std::string_view word) {
  return word.size() > 8 && word.starts_with("-") && !word.starts_with("--");
}

// The value that belongs to the name which ends at `at`: behind an assignment on the same line, or behind a blank where
// the name is a flag. A quoted one goes to its closing quote, a list to its bracket, anything else to the next blank.
// Nothing when there is none.
std::optional<Span> ValueBehind(std::string_view text, std::size_t at, bool is_flag, bool whole_line) {
  const std::string_view closing = QuoteAt(text, at);
  const std::size_t behind_name = at + closing.size();
  const std::size_t sign = SkipBlanks(text, behind_name);
  std::size_t begin = sign < text.size() ? SkipAssignment(text, sign) : sign;
  const bool by_blank = begin == sign;
  const auto flag_follows = [&] {
    const std::string_view word = text.substr(sign, text.find_first_of(" \t\n", sign) - sign);
    return word.starts_with("-") && !MayBeSecretWithDash(word);
  };
  if (by_blank && (!is_flag || sign == behind_name || flag_follows())) return std::nullopt;
  begin = SkipBlanks(text, begin);
  if (begin >= text.size() || text[begin] == '\n' || text[begin] == '{') return std::nullopt;
  // b'…' and the like of Python.
  const bool has_prefix = std::string_view("bBrRuU").find(text[begin]) != std::string_view::npos;
  if (has_prefix && begin + 1 < text.size() && (text[begin + 1] == '"' || text[begin + 1] == '\'')) ++begin;
  if (const std::string_view quote = QuoteAt(text, begin); !quote.empty()) {
    return QuotedValue(text, begin + quote.size(), quote);
  }
  const std::size_t line = EndOfLine(text, begin);
  if (text[begin] == '[') return Span{begin + 1, std::min(text.find(']', begin), line)};
  std::size_t end = begin;
  const auto ends = [&](char letter) {
    if (whole_line) return letter == '"' || letter == '\'' || letter == '\\';
    return IsSpace(letter) || (!closing.empty() && (letter == ',' || letter == '}' || letter == ']'));
  };
  while (end < line && !ends(text[end])) ++end;
  if (end == begin) return std::nullopt;
  return Span{begin, end};
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return lower;
}

// Of a word in running text and what stands behind it.
bool IsNamedSecret(std::string_view text, std::string_view word, std::size_t behind_word, Span value) {
  const std::string_view content = text.substr(value.begin, value.end - value.begin);
  if (!HoldsSecret(JudgeWord(word), content)) return false;
  const std::string name = Lower(word);
  const bool assigned_at_once = behind_word < text.size() && text[behind_word] == '=';
  // "pass: test_1" is the word of a test; a signature in a URL is long.
  if (name == "pass") return assigned_at_once;
  if (name == "sig") return assigned_at_once && content.size() >= 16;
  return !(name == "pwd" && (content.starts_with("/") || content.starts_with("~")));
}

// Words one after the other: names of secrets with their values, and words that look like keys themselves.
std::string WithoutNamedOrRandom(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
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
    at = end;
    if (JudgeWord(word) == SecretName::kNone) continue;
    const std::string name = Lower(word);
    const bool whole_line = name.ends_with("authorization") || name.ends_with("cookie");
    const auto value = ValueBehind(text, at, word.starts_with("-"), whole_line);
    if (!value || !IsNamedSecret(text, word, at, *value)) continue;
    kept += text.substr(at, value->begin - at);
    kept += kRemoved;
    at = value->end;
  }
  return kept;
}

// The names that are no ASCII words: password, pass phrase, token, key.
void RemoveNamedInChinese(std::string& text) {
  for (const std::string_view name : {"密码", "口令", "令牌", "密钥"}) {
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
      at += name.size();
      std::size_t behind = at;
      // "密码是 X", "密码为 X": is.
      for (const std::string_view is : {"是", "为"}) {
        const std::size_t next = SkipBlanks(text, at + is.size());
        if (std::string_view(text).substr(at).starts_with(is) && next < text.size() && IsWord(text[next]))
          behind = next;
      }
      std::optional<Span> value;
      if (behind != at) {
        value = Span{behind, behind};
        while (value->end < text.size() && !IsSpace(text[value->end])) ++value->end;
      } else {
        value = ValueBehind(text, at, false, false);
      }
      if (!value) continue;
      // A sentence goes on behind its comma or full stop.
      for (const std::string_view stop : {"，", "。", "；", "、"})
        value->end = std::min(value->end, text.find(stop, value->begin));
      if (!HoldsSecret(SecretName::kMaybe, std::string_view(text).substr(value->begin, value->end - value->begin)))
        continue;
      text.replace(value->begin, value->end - value->begin, kRemoved);
      at = value->begin;
    }
  }
}

// "user:secret@host" without a scheme, as in the settings of a proxy.
void RemoveBareUsers(std::string& text) {
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
    text.replace(begin, at - begin, kRemoved);
    at = begin + std::string_view(kRemoved).size();
  }
}

// Programs that take a password behind -p, which means other things elsewhere.
bool TakesPassword(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);
  for (const std::string_view known : {"sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb"}) {
    if (program == known) return true;
  }
  return false;
}

// The words of a line, or the arguments of a command, up to one of them. Constant time per word: a line may have
// hundreds of thousands.
class WordsBefore {
 public:
  void Add(std::string_view word) {
    if (TakesPassword(word)) {
      program_ = word;
      only_flags_since_ = true;
    } else if (!word.starts_with("-")) {
      only_flags_since_ = false;
    }
    is_netrc_ = is_netrc_ || word == "login" || word == "machine";
    last_ = word;
    ++count_;
  }

  std::size_t count() const { return count_; }
  std::string_view last() const { return last_; }

  // What stands in the place of the next word; nothing: it may stay.
  std::optional<std::string> WithoutPassword(std::string_view word) const {
    const bool is_sshpass = program_.ends_with("sshpass");
    // Behind the program that sshpass starts, -p is a port.
    if (!program_.empty() && (!is_sshpass || only_flags_since_)) {
      if (is_sshpass && last_ == "-p") return kRemoved;
      if (word.starts_with("-p") && word.size() > 2) return std::string("-p") + kRemoved;
    }
    // curl -u user:secret
    const bool user = last_ == "-u" || last_ == "--user" || last_ == "--proxy-user";
    const std::size_t colon = word.find(':');
    if (user && colon != std::string_view::npos && !IsOrdinaryValue(word.substr(colon + 1))) return kRemoved;
    if (last_ == "password" && is_netrc_) return kRemoved;
    return std::nullopt;
  }

 private:
  std::string_view program_;  // the last that takes a password behind -p
  bool only_flags_since_ = false;
  bool is_netrc_ = false;
  std::string_view last_;
  std::size_t count_ = 0;
};

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
      const std::size_t word = at;
      while (at < line && !IsSpace(text[at])) ++at;
      const std::string_view argument = text.substr(word, at - word);
      // A line that is nothing but "password X" is of .netrc, too.
      const bool alone = before.count() == 1 && before.last() == "password" && SkipBlanks(text, at) >= line;
      const auto shown = alone ? std::optional<std::string>(kRemoved) : before.WithoutPassword(argument);
      kept += shown ? std::string_view(*shown) : argument;
      if (!argument.empty()) before.Add(argument);
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
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_base64(text[end])) ++end;
    int changes = 0;
    for (std::size_t i = at + 1; i < end; ++i) changes += kind(text[i]) != kind(text[i - 1]) ? 1 : 0;
    const bool part_of_path = at > 0 && (text[at - 1] == '.' || text[at - 1] == '_' || text[at - 1] == '-');
    if (end - at == kLength && changes >= kLeastChanges && !part_of_path) {
      text.replace(at, kLength, kRemoved);
      end = at + std::string_view(kRemoved).size();
    }
    at = end + 1;
  }
}

// Homes of others say their names.
void HideHomes(std::string& text) {
  for (std::size_t at = text.find("/home/"); at != std::string::npos; at = text.find("/home/", at + 6)) {
    if (at > 0 && (IsWord(text[at - 1]) || text[at - 1] == '.')) continue;
    std::size_t end = at + 6;
    while (end < text.size() && (IsWord(text[end]) || text[end] == '.')) ++end;
    text.replace(at + 6, end - at - 6, "user");
  }
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
  RemoveUrlUsers(shown);
  shown = WithoutPlacedPasswords(shown);
  RemoveNamedInChinese(shown);
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
