#include "job/redaction/secret_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string>
#include <vector>

namespace fulldeck::job {
namespace {

// Anywhere in a name, also inside a longer word (mypassword, clientsecret). The same applies to the Chinese names.
constexpr std::array kAlways{"PASSWORD", "PASSWD",    "PASSPHRASE", "SECRET",    "CREDENTIAL",
                             "APIKEY",   "AUTHTOKEN", "ACCESSKEY",  "PRIVATEKEY"};
// Only as the last word of a name. AK and SK are the access key and the secret key of several clouds.
constexpr std::array kAtTheEnd{"AK",  "SK",  "PASS", "PWD",    "AUTH",    "AUTHORIZATION",
                               "DSN", "SAS", "SIG",  "COOKIE", "COOKIES", "BEARER"};
// Words that may follow the significant word.
constexpr std::array kQualifiers{"VALUE", "STRING", "HEADER", "DATA", "BASE64", "B64", "FILE", "ENV", "ID"};
// Tokens of a language model or a vision transformer, and keys of a table.
constexpr std::array kBeforeOrdinaryToken{
    "PAD",   "EOS", "BOS",     "UNK",    "CLS",        "SEP",       "MASK",  "CLASS", "IMAGE",   "IMG",   "SPECIAL",
    "ADDED", "REG", "PATCH",   "VISION", "TEXT",       "NEXT",      "LAST",  "FIRST", "NUM",     "MAX",   "MIN",
    "N",     "NEW", "TOTAL",   "PROMPT", "INPUT",      "OUTPUT",    "START", "END",   "STOP",    "AUDIO", "VIDEO",
    "BLANK", "SOS", "STORAGE", "DIST",   "COMPLETION", "GENERATED", "PER",   "EXTRA", "REGISTER"};
constexpr std::array kAfterOrdinaryToken{
    "COUNT",     "COUNTS",     "SIZE",           "LENGTH", "LEN",   "NUM",  "TYPE", "TYPES", "IDS",
    "IDX",       "INDEX",      "LIMIT",          "DIM",    "EMBED", "RATE", "MASK", "LOSS",  "PER",
    "EMBEDDING", "EMBEDDINGS", "CLASSIFICATION", "LEVEL",  "PROB"};
constexpr std::array kBeforeOrdinaryKey{"PRIMARY", "FOREIGN", "SORT",    "CACHE", "MISSING", "UNEXPECTED",
                                        "PUBLIC",  "DICT",    "STATE",   "HOT",   "ANY",     "QUERY",
                                        "META",    "EXTRA",   "MONITOR", "LOSS"};
constexpr std::array kBeforeOrdinaryPass{"FORWARD", "BACKWARD", "FIRST", "SECOND", "SINGLE",
                                         "BY",      "ONE",      "TWO",   "MULTI"};

bool IsOneOf(std::string_view word, std::span<const char* const> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool IsUpper(char letter) {
  return std::isupper(static_cast<unsigned char>(letter)) != 0;
}

bool IsLower(char letter) {
  return std::islower(static_cast<unsigned char>(letter)) != 0;
}

// The upper-case words of a name: "accessKeySecret2" and "access_key-secret" have ACCESS, KEY, SECRET.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char letter = name[i];
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 ||
        std::isdigit(static_cast<unsigned char>(letter)) != 0) {
      if (!words.back().empty()) words.emplace_back();
      continue;
    }
    const bool hump = IsUpper(letter) && i > 0 &&
                      (IsLower(name[i - 1]) || (i + 1 < name.size() && IsUpper(name[i - 1]) && IsLower(name[i + 1])));
    if (hump && !words.back().empty()) words.emplace_back();
    words.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& letter : upper) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return upper;
}

// Without surrounding brackets and commas, in upper case.
std::string Core(std::string_view value) {
  std::string text = Upper(value);
  while (!text.empty() && std::string_view(",;.)]}").find(text.back()) != std::string_view::npos) text.pop_back();
  const std::size_t begin = std::min(text.find_first_not_of("([{"), text.size());
  return text.substr(begin);
}

bool HasStrongPart(std::string_view name) {
  std::string upper = Upper(name);
  std::erase_if(upper, [](char letter) { return letter == '_' || letter == '-' || letter == '.' || letter == ' '; });
  const auto has = [&upper](std::string_view part) { return upper.find(part) != std::string::npos; };
  return std::any_of(kAlways.begin(), kAlways.end(), has) ||
         std::any_of(kChineseNames.begin(), kChineseNames.end(), has);
}

// The word before position `at`, or empty.
std::string_view Before(const std::vector<std::string>& words, std::size_t at) {
  return at == 0 ? std::string_view() : std::string_view(words[at - 1]);
}

std::string_view After(const std::vector<std::string>& words, std::size_t at) {
  return at + 1 < words.size() ? std::string_view(words[at + 1]) : std::string_view();
}

bool IsTokenName(const std::vector<std::string>& words, std::size_t at) {
  return (words[at] == "TOKEN" || words[at] == "TOKENS") && !IsOneOf(Before(words, at), kBeforeOrdinaryToken) &&
         !IsOneOf(After(words, at), kAfterOrdinaryToken);
}

bool IsKeyName(const std::vector<std::string>& words, std::size_t at) {
  return (words[at] == "KEY" || words[at] == "KEYS") && !IsOneOf(Before(words, at), kBeforeOrdinaryKey);
}

// The significant word: the last one that is not a qualifier.
std::size_t LastThatCounts(const std::vector<std::string>& words) {
  std::size_t last = words.size() - 1;
  while (last > 0 && IsOneOf(words[last], kQualifiers)) --last;
  return last;
}

bool EndsAsSecret(const std::vector<std::string>& words) {
  const std::size_t last = LastThatCounts(words);
  if (words[last] == "PASS" && IsOneOf(Before(words, last), kBeforeOrdinaryPass)) return false;
  return IsOneOf(words[last], kAtTheEnd);
}

}  // namespace

SecretName JudgeName(std::string_view name) {
  if (HasStrongPart(name)) return SecretName::kSecret;
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty()) return SecretName::kNone;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (IsTokenName(words, i) || IsKeyName(words, i)) return SecretName::kMaybe;
  }
  return EndsAsSecret(words) ? SecretName::kMaybe : SecretName::kNone;
}

SecretName JudgeWord(std::string_view word) {
  if (word.starts_with("-")) return JudgeName(word);
  if (HasStrongPart(word)) return SecretName::kSecret;
  const std::vector<std::string> words = WordsOf(word);
  if (words.empty()) return SecretName::kNone;
  const std::size_t last = LastThatCounts(words);
  if (IsTokenName(words, last)) return SecretName::kMaybe;
  // Without this, "missing key: …" and key=lambda; "2 pass, 1 fail"; "auth: ok" would all be secrets.
  if (words[last] == "KEY" && last > 0 && IsKeyName(words, last)) return SecretName::kMaybe;
  if (words[last] == "KEYS" && IsOneOf(Before(words, last), std::array{"API", "ACCESS", "SSH", "AUTH"})) {
    return SecretName::kMaybe;
  }
  return EndsAsSecret(words) ? SecretName::kMaybe : SecretName::kNone;
}

SecretName JudgePair(std::string_view before, std::string_view word) {
  if (word.size() > 4 || before.size() > 7) return SecretName::kNone;
  const std::string last = Upper(word);
  if (last != "KEY" && last != "KEYS") return SecretName::kNone;
  const bool known = IsOneOf(Upper(before), std::array{"API", "ACCESS", "SECRET", "PRIVATE", "AUTH"});
  return known ? SecretName::kMaybe : SecretName::kNone;
}

bool LooksLikeSecret(std::string_view word) {
  constexpr std::size_t kShortest = 6;
  // A path, a flag, a placeholder, a call, an address.
  if (word.size() < kShortest || std::string_view("-/~<[{(").find(word.front()) != std::string_view::npos) return false;
  if (word.find_first_of("([{<") != std::string_view::npos || word.find("://") != std::string_view::npos) return false;
  bool letter = false;
  bool sign = false;
  bool hump = false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    letter = letter || std::isalpha(static_cast<unsigned char>(word[i])) != 0;
    sign = sign || std::string_view("0123456789!@#$%^&*+~=?").find(word[i]) != std::string_view::npos;
    hump = hump || (i > 0 && IsLower(word[i - 1]) && IsUpper(word[i]));
  }
  if (letter && sign) return !IsOrdinaryValue(word);
  // AccessKey is a name, not a secret.
  if (letter) return hump && JudgeName(word) == SecretName::kNone;
  // 123456, but not 12:30:01
  return sign && word.find(':') == std::string_view::npos && !IsOrdinaryValue(word);
}

bool IsNoValue(std::string_view value) {
  const std::string text = Core(value);
  for (const char* word : {"", "TRUE", "FALSE", "NONE", "NULL", "NAN", "YES", "NO", "ON", "OFF", "OK", "REMOVED"}) {
    if (text == word) return true;
  }
  return false;
}

bool IsOrdinaryValue(std::string_view value) {
  if (IsNoValue(value)) return true;
  // One number, or several: 512, 0.4, 1e-3, 4k, 101, 2023. A long sequence of digits may be a code.
  const std::string text = Core(value);
  std::size_t digits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    digits = digit ? digits + 1 : 0;
    if (digits > 5) return false;
    const bool unit =
        i > 0 && i + 1 == text.size() && std::string_view("KMGBS%").find(text[i]) != std::string_view::npos;
    if (!digit && !unit && std::string_view("+-.,E_ /").find(text[i]) == std::string_view::npos) return false;
  }
  return std::any_of(text.begin(), text.end(),
                     [](char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; });
}

bool HoldsSecret(SecretName kind, std::string_view value) {
  if (kind == SecretName::kNone || value.empty()) return false;
  return kind == SecretName::kSecret ? !IsNoValue(value) : !IsOrdinaryValue(value);
}

bool MayBeSecretWithDash(std::string_view word) {
  return word.size() > 8 && word.starts_with("-") && !word.starts_with("--");
}

}  // namespace fulldeck::job
