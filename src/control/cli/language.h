// In which language people are told causes and cures.
#pragma once

#include <string>

#include "base/environment.h"

namespace fulldeck::cli {

// `requested`: the value of --lang, en or zh; empty: as the locale of the user says.
bool WantsChinese(const std::string& requested,
                  const base::Environment& environment = base::Environment::OfThisProcess());

}  // namespace fulldeck::cli
