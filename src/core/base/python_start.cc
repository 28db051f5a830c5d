#include "base/python_start.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace fulldeck::base {
namespace {

// Runs before the first import of the script. sys is built into the interpreter, so no file can shadow it.
constexpr char kRemoveWorkingDirectory[] =
    "import sys\n"
    "sys.path[:] = [entry for entry in sys.path if entry[:1] == '/']\n";

bool SameFolder(const std::string& one, const std::string& other) {
  struct stat first {};
  struct stat second {};
  return stat(one.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

Environment Without(Environment environment, const std::string& working_directory) {
  if (const auto callers = environment.Get("PYTHONPATH")) {
    std::vector<std::string> kept;
    // An empty entry means the working directory: PYTHONPATH=$PYTHONPATH:/x has one if the variable was not set.
    for (const std::string_view entry : Split(*callers, ':')) {
      std::string folder(entry);
      if (folder.starts_with("/") && !SameFolder(folder, working_directory)) kept.push_back(std::move(folder));
    }
    environment.Remove("PYTHONPATH");
    if (!kept.empty()) environment.Set("PYTHONPATH", Join(kept, ":"));
  }
  return environment;
}

std::string WorkingDirectory() {
  std::error_code unknown;
  return std::filesystem::current_path(unknown).string();
}

}  // namespace

Environment WithoutWorkingDirectory(Environment environment) {
  return Without(std::move(environment), WorkingDirectory());
}

std::vector<std::string> PythonStart::Variables() const {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment.all()) variables.push_back(name + "=" + value);
  return variables;
}

PythonStart StartPythonScript(const std::string& python, std::string_view script,
                              const std::vector<std::string>& arguments, Environment environment,
                              const std::string& working_directory) {
  environment = Without(std::move(environment), working_directory);
  // From Python 3.11 on, this keeps the directory off the search path altogether. It is needed from 3.13 on, which
  // imports linecache before the first line of the script.
  environment.Set("PYTHONSAFEPATH", "1");
  PythonStart start{{python, "-c", kRemoveWorkingDirectory + std::string(script)}, std::move(environment)};
  start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
  return start;
}

PythonStart StartPythonScript(const std::string& python, std::string_view script,
                              const std::vector<std::string>& arguments, Environment environment) {
  return StartPythonScript(python, script, arguments, std::move(environment), WorkingDirectory());
}

}  // namespace fulldeck::base
