// The program line of a rank: which interpreter, script, module or binary, found and checked before anything starts.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::launcher {

// arguments[0] is a path that can be executed. A script runs as PYTHON -u script …, where PYTHON is $PYTHON_EXEC, else
// the one next to fulldeck, else python3 of PATH; a file with an exec bit that is not Python runs directly, as does
// everything under --no-python. The error says what is missing: the script, its exec bit, its interpreter, Python.
// `own_folder`: where fulldeck itself stands. A Python of that folder comes before the one of PATH, so that the
// fulldeck of a virtual environment runs scripts in that environment, as its torchrun does; not in the system's own
// folders, where a Python stands next to everything.
base::Result<std::vector<std::string>> ResolveProgram(const job::LaunchFlags& flags,
                                                      const base::Environment& environment,
                                                      const std::string& own_folder);

// The interpreter of a resolved line; empty if the rank is not a Python program.
std::string PythonOf(const std::vector<std::string>& resolved, const job::LaunchFlags& flags);

// The same line for one local rank: the older launch mode adds --local-rank=N after the script.
std::vector<std::string> ProgramOfRank(const std::vector<std::string>& resolved, const job::LaunchFlags& flags,
                                       int local_rank);

}  // namespace fulldeck::launcher
