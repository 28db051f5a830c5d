#include "cli/language.h"

namespace fulldeck::cli {

bool WantsChinese(const std::string& requested, const base::Environment& environment) {
  if (!requested.empty()) return requested == "zh";
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const auto value = environment.Get(name);
    if (value && !value->empty()) return value->starts_with("zh");
  }
  return false;
}

}  // namespace fulldeck::cli
