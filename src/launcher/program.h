// The program line of a rank: which interpreter, script, module or binary, found and checked before anything starts.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "job/launch_flags.h"

namespace fulldeck::launcher {

// arguments[0] is a path that can be executed. A script runs as ${PYTHON_EXEC:-python3} -u script …; a file with an
// exec bit that is not Python runs directly, as does everything under --no-python. The error says what is missing: the
// script, its exec bit, its interpreter, Python.
base::Result<std::vector<std::string>> ResolveProgram(const job::LaunchFlags& flags,
                                                      const base::Environment& environment);

// The same line for one local rank: the older launch mode adds --local-rank=N after the script.
std::vector<std::string> ProgramOfRank(const std::vector<std::string>& resolved, const job::LaunchFlags& flags,
                                       int local_rank);

}  // namespace fulldeck::launcher
