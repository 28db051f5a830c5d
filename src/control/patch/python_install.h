// Finds where a Python installation has a package. Runs that Python to find out, because only it knows its path, its
// .pth files and its environments. Does not import the package. May block for up to `timeout`.
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
  std::string version;        // empty: unknown
  bool has_fulldeck = false;  // that Python can import fulldeck.adapters
};

// The Python to use: `requested` (a path, or a name that is searched for on PATH); otherwise the one of the active
// virtual environment (VIRTUAL_ENV); otherwise python3 on PATH.
base::Result<std::string> FindPython(const std::string& requested, const base::Environment& environment);

// Fails if Python does not answer in time, gives an invalid answer, or does not have the package.
base::Result<PythonInstall> QueryPython(const std::string& python, const std::string& package, base::Duration timeout);

}  // namespace fulldeck::patch
