// Whether a name (of a variable, a flag, a JSON key, a word before '=' in a log) indicates that its value is a
// secret. Names are split into words (hf_token, dbPassword, ACCESS-KEY), so that "author", "bypass" and "tokenizer"
// do not match. Pure.
#pragma once

#include <array>
#include <string_view>

namespace fulldeck::job {

enum class SecretName {
  kNone,
  kMaybe,   // token, key, pass …: with a small number, true or false after it, it is an ordinary setting
  kSecret,  // password, secret, credential …: any value is a secret
};

// For a variable, a flag (with or without dashes) or a JSON key.
SecretName JudgeName(std::string_view name);

// For a word in running text, where "key:", "pass:" and "tokens=4096" are ordinary.
SecretName JudgeWord(std::string_view word);

// For two words that form one name: "API key", "secret access key".
SecretName JudgePair(std::string_view before, std::string_view word);

// The names that are not ASCII words, in simplified and traditional characters: password, pass phrase, token, key,
// credential, authorization code.
inline constexpr std::array<std::string_view, 14> kChineseNames{
    "密码", "密碼", "口令", "令牌", "密钥", "密鑰", "秘钥", "秘鑰", "金鑰", "凭证", "憑證", "凭据", "憑據", "授权码"};

// Whether a word would not occur in a sentence: a letter together with a digit or sign, or a long number. For names
// that may precede any word: "password is X", but "password is required".
bool LooksLikeSecret(std::string_view word);

// true, none, yes and the like.
bool IsNoValue(std::string_view value);

// Whether a value after a name of kind kMaybe is an ordinary setting: empty, true, none, a number below 100,000, a
// list of numbers.
bool IsOrdinaryValue(std::string_view value);

// Whether a value after a name of that kind is a secret.
bool HoldsSecret(SecretName kind, std::string_view value);

// Base64url tokens may begin with a dash. Such a word after the name of a secret counts as a secret, unless it is as
// short as a flag.
bool MayBeSecretWithDash(std::string_view word);

}  // namespace fulldeck::job
