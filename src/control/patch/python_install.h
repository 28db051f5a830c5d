// Where a Python has a package: requested of that Python itself, which alone knows its path, its .pth files and its
// environments. Nothing of the package is imported. May block for as long as `timeout` says.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::patch {

struct PythonInstall {
  std::string python;         // sys.executable
  std::string folder;         // of the package
  std::string version;        // empty: it does not tell
  bool has_fulldeck = false;  // that Python can import fulldeck.adapters
};

// The program that is meant: `requested` (a path, or a name that is looked for on PATH), or else the active virtual
// environment's (VIRTUAL_ENV), or else python3 on PATH.
base::Result<std::string> FindPython(const std::string& requested, const base::Environment& environment);

// An error when it does not answer in time, answers something else, or does not have the package.
base::Result<PythonInstall> QueryPython(const std::string& python, const std::string& package, base::Duration timeout);

}  // namespace fulldeck::patch
