// How fulldeck starts a Python for a question of its own (doctor, patch, bundle): nothing is imported from the working
// directory, which may belong to somebody else. `python -c` has that directory first on its search path, so a file
// json.py there would run with the caller's rights. Not -I: that would hide the user's own packages (PYTHONPATH,
// ~/.local), and the question is what training would see. Not for ranks: a training script may import what lies beside
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace fulldeck::base {

struct PythonStart {
  std::vector<std::string> arguments;
  Environment environment;

  std::vector<std::string> Variables() const;  // "NAME=value", as Spawn takes them
};

// For one of our scripts that lies in a file: PYTHONPATH without the entries that lead to the working directory of this
// process (empty ones and relative ones do).
Environment WithoutWorkingDirectory(Environment environment);

// `python -c SCRIPT arguments...`. The script's imports come from the standard library, the site folders and the
// entries of PYTHONPATH that are absolute and lead elsewhere than to `working_directory` (absolute, or empty when it is
// not known). Works for every Python, also 2.7.
PythonStart StartPythonScript(const std::string& python, std::string_view script,
                              const std::vector<std::string>& arguments, Environment environment,
                              const std::string& working_directory);

// The same for the working directory of this process.
PythonStart StartPythonScript(const std::string& python, std::string_view script,
                              const std::vector<std::string>& arguments, Environment environment);

}  // namespace fulldeck::base
