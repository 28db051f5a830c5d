#include "job/redaction/redaction.h"

#include <pwd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "job/launch/text_spans.h"
#include "job/redaction/named_secrets.h"
#include "job/redaction/placed_passwords.h"
#include "job/redaction/secret_names.h"
#include "job/redaction/shallow_json.h"
#include "wire/sha256.h"

namespace fulldeck::job {
namespace {

using Json = nlohmann::ordered_json;

// Shorter ones would remove parts of other words.
constexpr std::size_t kShortestSecret = 6;
// A shorter token is a number such as 1 and protects nothing.
constexpr std::size_t kShortestToken = 4;

// The shell's own variable; any other PWD is a password.
bool IsWorkingDirectory(std::string_view name, std::string_view value) {
  return (name == "PWD" || name == "OLDPWD") && (value.starts_with("/") || value.starts_with("~"));
}

bool IsSecret(const std::string& name, const std::string& value) {
  return value.size() >= kShortestSecret && !IsWorkingDirectory(name, value) && HoldsSecret(JudgeName(name), value);
}

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

// "https://me:secret@host/x": removes the part before the @ of the authority.
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

// Webhook URLs: knowing one is enough to post to it.
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

// "user:secret@host" without a scheme, as in proxy settings.
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

// A secret key of AWS: 40 characters of base64, which '/' would split into words.
void RemoveBase64Keys(std::string& text) {
  constexpr std::size_t kLength = 40;
  constexpr int kMinChanges = 14;
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
    if (end - at == kLength && changes >= kMinChanges && !part_of_path) rewritten.Replace({at, end}, kRemoved);
    at = end + 1;
  }
  text = rewritten.Finish();
}

// Home directories of other users contain their names.
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

// Removes everything under a name of that kind.
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
  // Without a salt the marks could be looked up in a table: store none.
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

// Compares whole words, and the part of a word after the first '=' or ':'.
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
    // The word may be the last one of a sentence.
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
    // A flag, or a setting such as db.password=…; not a sentence or a script that contains a '='.
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
