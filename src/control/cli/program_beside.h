// Programs that belong to fulldeck and lie in its own folder: fulldeck-train, fulldeck-predict. They need torch, which
// fulldeck itself does not, so there are builds without them.
#pragma once

#include <string>

#include "base/result.h"

namespace fulldeck::cli {

// Its absolute path. The error says where it was looked for and how to get it.
base::Result<std::string> ProgramBeside(const std::string& name);

}  // namespace fulldeck::cli
