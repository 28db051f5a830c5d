#include "cli/language.h"

namespace fulldeck::cli {

bool WantsChinese(const std::string& asked, const base::Environment& environment) {
  if (!asked.empty()) return asked == "zh";
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const auto value = environment.Get(name);
    if (value && !value->empty()) return value->starts_with("zh");
  }
  return false;
}

}  // namespace fulldeck::cli
