// Whether a name (of a variable, a flag, a JSON key, a word before '=' in a log) says that its value is a secret. Names
// are taken apart into words (hf_token, dbPassword, ACCESS-KEY), so that "author", "bypass" and "tokenizer" are none.
// Pure.
#pragma once

#include <string_view>

namespace fulldeck::job {

enum class SecretName {
  kNone,
  kMaybe,   // token, key, pass …: a small number, true or false behind it is an ordinary setting
  kSecret,  // password, secret, credential …: whatever stands behind it
};

// Of a variable, a flag (with or without dashes) or a JSON key.
SecretName JudgeName(std::string_view name);

// Of a word in running text, where "key:", "pass:" and "tokens=4096" are ordinary.
SecretName JudgeWord(std::string_view word);

// true, none, yes and the like.
bool IsNoValue(std::string_view value);

// Whether a value behind a name of kind kMaybe is an ordinary setting: empty, true, none, a number below 100,000, a
// list of numbers.
bool IsOrdinaryValue(std::string_view value);

}  // namespace fulldeck::job
