#include "job/redaction/placed_passwords.h"

#include <algorithm>
#include <array>

#include "job/launch/text_spans.h"
#include "job/redaction/redaction.h"
#include "job/redaction/secret_names.h"

namespace fulldeck::job {

// A program with a flag for a password that means something else in other programs.
struct PasswordFlag {
  std::string_view program;
  std::string_view flag;
  std::string_view command;  // the flag has its meaning only after this word; empty: immediately
  bool separate = true;      // -p X
  bool attached = true;      // -pX
};

namespace {

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

// A word of a line without the quotes, brackets and commas around it: Python prints commands as ['docker', 'login'].
Span CoreOf(std::string_view word) {
  const std::size_t begin = std::min(word.find_first_not_of("[(\"'`"), word.size());
  const std::size_t end = word.find_last_not_of("])\"'`,");
  return {begin, end == std::string_view::npos || end < begin ? begin : end + 1};
}

}  // namespace

void WordsBefore::Add(std::string_view word, bool bare) {
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

std::optional<std::string> WordsBefore::WithoutPassword(std::string_view word) const {
  // After the program that sshpass starts, -p is a port.
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
      // A line with only "password X" is from .netrc, too.
      const bool alone = before.IsPasswordAlone() && SkipBlanks(text, at) >= line;
      const auto shown = alone ? std::optional<std::string>(kRemoved) : before.WithoutPassword(argument);
      kept += word.substr(0, core.begin);
      kept += shown && !argument.empty() ? std::string_view(*shown) : argument;
      kept += word.substr(core.end);
      if (!word.empty()) before.Add(argument, argument.size() == word.size());
      if (core.begin == 0 && core.end < word.size()) before.CloseQuote();
    }
    if (at < text.size()) kept += text[at++];
  }
  return kept;
}

}  // namespace fulldeck::job
