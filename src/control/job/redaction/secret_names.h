// Whether a name (of a variable, a flag, a JSON key, a word before '=' in a log) says that its value is a secret. Names
// are taken apart into words (hf_token, dbPassword, ACCESS-KEY), so that "author", "bypass" and "tokenizer" are none.
// Pure.
#pragma once

#include <array>
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

// Of two words that make one name: "API key", "secret access key".
SecretName JudgePair(std::string_view before, std::string_view word);

// The names that are no ASCII words, in simplified and traditional characters: password, pass phrase, token, key,
// credential, authorization code.
inline constexpr std::array<std::string_view, 14> kChineseNames{
    "密码", "密碼", "口令", "令牌", "密钥", "密鑰", "秘钥", "秘鑰", "金鑰", "凭证", "憑證", "凭据", "憑據", "授权码"};

// Whether a word is one that no sentence has: a letter and a digit or sign in it, or a long number. For names that
// stand before any word: "password is X", but "password is required".
bool LooksLikeSecret(std::string_view word);

// true, none, yes and the like.
bool IsNoValue(std::string_view value);

// Whether a value behind a name of kind kMaybe is an ordinary setting: empty, true, none, a number below 100,000, a
// list of numbers.
bool IsOrdinaryValue(std::string_view value);

// Whether a value behind a name of that kind is a secret.
bool HoldsSecret(SecretName kind, std::string_view value);

// Tokens in base64 for URLs may begin with a dash; behind the name of a secret such a word is taken for one, unless it
// is short as a flag.
bool MayBeSecretWithDash(std::string_view word);

}  // namespace fulldeck::job
