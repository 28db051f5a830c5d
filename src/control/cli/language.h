// The language in which causes and fixes are printed.
#pragma once

#include <string>

#include "base/environment.h"

namespace fulldeck::cli {

// `requested`: the value of --lang, en or zh; empty: determined by the user's locale.
bool WantsChinese(const std::string& requested,
                  const base::Environment& environment = base::Environment::OfThisProcess());

}  // namespace fulldeck::cli
