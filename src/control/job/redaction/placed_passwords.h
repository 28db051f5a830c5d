// Passwords that are recognized by position instead of by name: after the -p of certain programs, in a line of
// .netrc. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::job {

struct PasswordFlag;

// The words of a line, or the arguments of a command, before the current one. Constant time per word, because a line
// may have hundreds of thousands.
class WordsBefore {
 public:
  // `bare`: the word has no quotes or brackets around it.
  void Add(std::string_view word, bool bare = true);
  // A quote closes after the last word, as in `mysql -p`: the next word is not its value.
  void CloseQuote() { last_ = {}; }

  std::string_view last() const { return last_; }
  // Nothing but "password" so far.
  bool IsPasswordAlone() const { return count_ == 1 && IsPassword(); }

  // The replacement for the next word; nullopt: it may stay.
  std::optional<std::string> WithoutPassword(std::string_view word) const;

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

// Line by line, word by word.
std::string WithoutPlacedPasswords(std::string_view text);

}  // namespace fulldeck::job
