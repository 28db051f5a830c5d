// Programs that belong to fulldeck and are in its own folder: fulldeck-train, fulldeck-predict. They need torch,
// which fulldeck itself does not, so some builds do not include them.
#pragma once

#include <string>

#include "base/result.h"

namespace fulldeck::cli {

// The absolute path. The error contains the searched path and how to install the program.
base::Result<std::string> ProgramBeside(const std::string& name);

}  // namespace fulldeck::cli
