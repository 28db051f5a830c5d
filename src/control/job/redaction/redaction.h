// Removes private data from text: secrets, recognized by their names and by their form, and identifying data of the
// user. For everything that is given to others: the note of a launch, the archive for support. Prefers to remove too
// much. Pure, apart from OfThisProcess.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace fulldeck::job {

// The replacement for a secret.
inline constexpr char kRemoved[] = "(removed)";

// A form in which secrets are stored on disk so that they can be recognized later without being readable: their
// HMAC-SHA256 under a random salt. Words of a text are compared with it; a secret with spaces or quotes in it is not
// found that way.
struct SecretMarks {
  std::string salt;
  std::vector<std::string> marks;
};
SecretMarks MarksOfSecrets(const base::Environment& environment);

class Redaction {
 public:
  // Replaces `home` by "~" and `user` by "user", if they are known and identify someone ("root" does not).
  Redaction(std::string home, std::string user);
  // Home and user of the caller, and the secrets of this environment.
  static Redaction OfThisProcess(const base::Environment& environment);

  // From now on the values of secret variables are removed from every text, wherever they occur.
  void Learn(const base::Environment& environment);
  void Learn(SecretMarks marks);
  // A secret that is not in a variable. Below 6 characters only whole words are removed, below 4 characters nothing,
  // because short strings occur everywhere.
  void LearnSecret(const std::string& secret);

  // Whether a variable, flag or key of that name can hold a secret (job/redaction/secret_names.h).
  static bool IsSecretName(std::string_view name);

  // The value in the form in which it may be shown.
  std::string Variable(std::string_view name, std::string_view value) const;
  // Removes from any text: learned secrets; user and password of URLs and of user:password@host; values after a
  // secret name (API_KEY=…, --token …, "password": "…", environ['TOKEN'] = '…', 密码：…), in .netrc, after Bearer,
  // sshpass -p, docker login -p and curl -u; the ends of webhook URLs; private keys; words that look like keys (hf_…,
  // sk-…, long and random); home directories; the user.
  std::string Text(std::string_view text) const;
  // The same for JSON, which stays valid JSON: applies to each string in it and, by the names of its keys, also to
  // numbers and lists. A list of strings that contains a flag is treated as a command line. Invalid JSON is treated
  // as text.
  std::string JsonText(std::string_view text) const;
  // For a command line: also removes the value after a flag with a secret name.
  std::vector<std::string> Arguments(const std::vector<std::string>& arguments) const;

 private:
  std::string home_;
  std::string user_;
  std::vector<std::string> secrets_;  // longest first
  SecretMarks marks_;

  std::string WithoutMarked(std::string text) const;
};

}  // namespace fulldeck::job
