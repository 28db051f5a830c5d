// The command line of a rank: interpreter, script, module or binary, resolved and checked before anything starts.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::launcher {

// Returns a command line whose arguments[0] is an executable path. A script runs as PYTHON -u script …, where PYTHON is
// $PYTHON_EXEC, otherwise the one next to fulldeck, otherwise python3 of PATH. An executable file that is not Python
// runs directly, as does everything under --no-python. The error names what is missing: the script, its exec bit, its
// interpreter, or Python.
//
// `own_folder`: the folder of the fulldeck binary. A Python in that folder is preferred over the one of PATH, so that
// the fulldeck of a virtual environment runs scripts in that environment, as its torchrun does. System folders such as
// /usr/bin are excluded, because they always contain a Python.
base::Result<std::vector<std::string>> ResolveProgram(const job::LaunchFlags& flags,
                                                      const base::Environment& environment,
                                                      const std::string& own_folder);

// The interpreter of a resolved command line; empty if the rank is not a Python program.
std::string PythonOf(const std::vector<std::string>& resolved, const job::LaunchFlags& flags);

// The command line of one local rank: the legacy launch mode adds --local-rank=N after the script.
std::vector<std::string> ProgramOfRank(const std::vector<std::string>& resolved, const job::LaunchFlags& flags,
                                       int local_rank);

}  // namespace fulldeck::launcher
