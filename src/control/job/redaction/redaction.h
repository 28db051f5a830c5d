// Takes out of a text what nobody outside is to see: secrets by their names and by their looks, and whose machine it
// is. For what is given to others: the note of a launch, the archive for support. Rather too much than too little.
// Pure, apart from OfThisProcess.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace fulldeck::job {

// What stands in the place of a secret.
inline constexpr char kRemoved[] = "(removed)";

// What secrets leave on disk, so that they are known again later without standing there: their HMAC-SHA256 under a salt
// of its own. Words of a text are compared with it; a secret with spaces or quotes in it is not found that way.
struct SecretMarks {
  std::string salt;
  std::vector<std::string> marks;
};
SecretMarks MarksOfSecrets(const base::Environment& environment);

class Redaction {
 public:
  // `home` becomes "~" and `user` becomes "user", where they are known and say something ("root" does not).
  Redaction(std::string home, std::string user);
  // Home and user of who calls, and the secrets of this environment.
  static Redaction OfThisProcess(const base::Environment& environment);

  // From now on the values of secret variables are taken out of every text, wherever they stand in it.
  void Learn(const base::Environment& environment);
  void Learn(SecretMarks marks);
  // One that no variable holds. Below 6 characters whole words only, below 4 none: they would be all over the text.
  void LearnSecret(const std::string& secret);

  // Whether a variable, flag or key of that name can hold a secret (job/redaction/secret_names.h).
  static bool IsSecretName(std::string_view name);

  // The value as it may be shown.
  std::string Variable(std::string_view name, std::string_view value) const;
  // Of any text: secrets that were learned; user and password of URLs and of user:password@host; what stands behind a
  // secret name (API_KEY=…, --token …, "password": "…", environ['TOKEN'] = '…', 密码：…), in .netrc, behind Bearer,
  // sshpass -p, docker login -p and curl -u; the ends of web hooks; private keys; words that look like keys (hf_…,
  // sk-…, long and random); homes; the user.
  std::string Text(std::string_view text) const;
  // The same for JSON, which stays JSON: each text in it, and by the names of its keys, also numbers and lists. A list
  // of texts that has a flag in it is a command line. What is no JSON is taken as a text.
  std::string JsonText(std::string_view text) const;
  // Of a command line: the value behind a flag with a secret name goes too.
  std::vector<std::string> Arguments(const std::vector<std::string>& arguments) const;

 private:
  std::string home_;
  std::string user_;
  std::vector<std::string> secrets_;  // the longest first
  SecretMarks marks_;

  std::string WithoutMarked(std::string text) const;
};

}  // namespace fulldeck::job
