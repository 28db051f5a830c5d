// How fulldeck starts Python for its own queries (doctor, patch, bundle): nothing is imported from the working
// directory, which may belong to another user. `python -c` puts that directory first on its search path, so a file
// json.py there would run with the caller's rights. -I is not used: it would hide the user's own packages (PYTHONPATH,
// ~/.local), and the query is about what training would see. Not for ranks: a training script may import modules from
// its own directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace fulldeck::base {

struct PythonStart {
  std::vector<std::string> arguments;
  Environment environment;

  std::vector<std::string> Variables() const;  // "NAME=value", the form that Spawn takes
};

// For fulldeck scripts in files: PYTHONPATH without the entries that refer to the working directory of this process
// (empty and relative ones do).
Environment WithoutWorkingDirectory(Environment environment);

// `python -c SCRIPT arguments...`. The script's imports come from the standard library, the site folders and those
// entries of PYTHONPATH that are absolute and are not `working_directory` (absolute, or empty if unknown). Works for
// every Python version, including 2.7.
PythonStart StartPythonScript(const std::string& python, std::string_view script,
                              const std::vector<std::string>& arguments, Environment environment,
                              const std::string& working_directory);

// The same, with the working directory of this process.
PythonStart StartPythonScript(const std::string& python, std::string_view script,
                              const std::vector<std::string>& arguments, Environment environment);

}  // namespace fulldeck::base
