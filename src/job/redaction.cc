#include "job/redaction.h"

#include <pwd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "wire/sha256.h"

namespace fulldeck::job {
namespace {

using Json = nlohmann::ordered_json;

// Shorter ones would take pieces out of other words.
constexpr std::size_t kShortestSecret = 6;
constexpr std::size_t kShortestKey = 32;
constexpr std::array kSecretParts{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "KEY", "CREDENTIAL", "COOKIE"};

bool IsSecret(const std::string& name, const std::string& value) {
  return value.size() >= kShortestSecret && Redaction::IsSecretName(name) && value != kRemoved;
}

bool IsWord(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_' || character == '-';
}

bool IsSpace(char character) {
  return std::isspace(static_cast<unsigned char>(character)) != 0;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& character : upper) character = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  return upper;
}

// In running text "key:" and "tokens=4096" are ordinary words; "api_key=" and "token:" are not.
bool IsSecretWord(std::string_view word) {
  std::string upper = Upper(word);
  std::replace(upper.begin(), upper.end(), '-', '_');
  const auto ends_with = [&upper](std::string_view part) {
    return upper.ends_with(part) && (upper.size() == part.size() || upper[upper.size() - part.size() - 1] == '_');
  };
  if (upper.ends_with("APIKEY") || upper.ends_with("AUTHTOKEN")) return true;
  for (const char* part :
       {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "COOKIE"}) {
    if (ends_with(part)) return true;
  }
  // HTTP: "Authorization: Bearer …".
  return (ends_with("KEY") && upper.size() > 3) || upper == "AUTHORIZATION";
}

// Of services whose keys say what they are.
bool HasKeyPrefix(std::string_view word) {
  constexpr std::array kPrefixes{"sk-",   "hf_",   "ghp_",  "gho_", "ghs_", "github_pat_", "glpat-",
                                 "xoxb-", "xoxp-", "xoxa-", "AKIA", "ASIA", "AIza",        "pypi-"};
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
    const std::size_t sign = text.rfind('@', end);
    if (sign == std::string::npos || sign < begin || sign >= end) continue;
    text.replace(begin, sign - begin, kRemoved);
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

// Where the value begins that belongs to the name which ends at `at`: behind '=', ':' and quotes on the same line.
// `by_space`: a space is enough, as behind a flag. npos: there is none.
std::size_t ValueBehind(std::string_view text, std::size_t at, bool by_space) {
  bool assigned = by_space && at < text.size() && text[at] == ' ';
  while (at < text.size() && (text[at] == '"' || text[at] == '\'' || text[at] == ' ' || text[at] == '=' ||
                              text[at] == ':' || text[at] == '\t' || text[at] == '\\')) {
    assigned = assigned || text[at] == '=' || text[at] == ':';
    ++at;
  }
  return assigned ? at : std::string::npos;
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
    if (!IsSecretWord(word)) continue;
    std::size_t value = ValueBehind(text, at, word.starts_with("--"));
    if (value == std::string::npos || value >= text.size() || text[value] == '\n') continue;
    if (text.substr(value).starts_with("Bearer ") || text.substr(value).starts_with("Basic ")) {
      value = text.find(' ', value) + 1;
    }
    std::size_t behind = value;
    while (behind < text.size() && !IsSpace(text[behind]) && text[behind] != '"' && text[behind] != '\'' &&
           text[behind] != '\\' && text[behind] != ',' && text[behind] != ';' && text[behind] != '&') {
      ++behind;
    }
    if (behind == value) continue;
    kept += text.substr(at, value - at);
    kept += kRemoved;
    at = behind;
  }
  return kept;
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

void RedactJson(Json& json, const Redaction& redaction) {
  if (json.is_string()) {
    json = redaction.Text(json.get<std::string>());
  } else if (json.is_object()) {
    for (auto& member : json.items()) {
      if (member.value().is_string()) {
        member.value() = redaction.Variable(member.key(), member.value().get<std::string>());
      } else {
        RedactJson(member.value(), redaction);
      }
    }
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
  const std::string upper = Upper(name);
  return std::any_of(kSecretParts.begin(), kSecretParts.end(),
                     [&upper](const char* part) { return upper.find(part) != std::string::npos; });
}

std::string Redaction::Variable(std::string_view name, std::string_view value) const {
  return IsSecretName(name) && !value.empty() ? kRemoved : Text(value);
}

std::string Redaction::Text(std::string_view text) const {
  std::string shown(text);
  for (const std::string& secret : secrets_) ReplaceAll(shown, secret, kRemoved, false);
  shown = WithoutMarked(std::move(shown));
  RemovePrivateKeys(shown);
  RemoveUrlUsers(shown);
  shown = WithoutNamedOrRandom(shown);
  if (!home_.empty()) ReplaceAll(shown, home_, "~", true);
  HideHomes(shown);
  ReplaceAll(shown, user_, "user", true);
  return shown;
}

std::string Redaction::JsonText(std::string_view text) const {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return Text(text);
  RedactJson(json, *this);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> Redaction::Arguments(const std::vector<std::string>& arguments) const {
  std::vector<std::string> shown;
  bool secret_follows = false;
  for (const std::string& argument : arguments) {
    const auto equals = argument.find('=');
    const bool is_flag = argument.starts_with("-");
    if (secret_follows && !is_flag) {
      shown.emplace_back(kRemoved);
    } else if (equals != std::string::npos && IsSecretName(argument.substr(0, equals))) {
      shown.push_back(argument.substr(0, equals + 1) + kRemoved);
    } else {
      shown.push_back(Text(argument));
    }
    secret_follows = is_flag && equals == std::string::npos && IsSecretName(argument);
  }
  return shown;
}

}  // namespace fulldeck::job
