// Helpers to write a finding in both languages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "doctor/check.h"

namespace fulldeck::doctor {

// Formats the same values into both strings; use numbered fields ({0}, {1}) if the order differs.
template <typename... Values>
base::BilingualText Bilingual(fmt::format_string<const Values&...> english,
                              fmt::format_string<const Values&...> chinese, const Values&... values) {
  return {fmt::format(english, values...), fmt::format(chinese, values...)};
}

using Figures = std::vector<std::pair<std::string, std::string>>;

inline Finding Ok(base::BilingualText evidence, Figures figures = {}) {
  return {Verdict::kOk, std::move(evidence), {}, "", std::move(figures)};
}
inline Finding Warn(base::BilingualText evidence, base::BilingualText fix, std::string row = "", Figures figures = {}) {
  return {Verdict::kWarn, std::move(evidence), std::move(fix), std::move(row), std::move(figures)};
}
inline Finding Fail(base::BilingualText evidence, base::BilingualText fix, std::string row = "", Figures figures = {}) {
  return {Verdict::kFail, std::move(evidence), std::move(fix), std::move(row), std::move(figures)};
}
inline Finding CannotTell(base::BilingualText evidence, base::BilingualText fix, std::string row = "",
                          Figures figures = {}) {
  return {Verdict::kCannotTell, std::move(evidence), std::move(fix), std::move(row), std::move(figures)};
}

}  // namespace fulldeck::doctor
