// `fulldeck doctor --script`: reads a script and its configs, follows a config's `_base_`, and reports the traps in
// them. Nothing is executed or imported.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "lint/script_traps.h"

namespace fulldeck::lint {

struct ScriptReport {
  std::vector<std::string> files;  // files that were read, in order
  std::vector<TrapHit> hits;       // by file, then by line
};

// The first file is the script; an error if it cannot be read. A missing config is a hit.
base::Result<ScriptReport> CheckScript(const std::vector<std::string>& files, const ScriptMachine& machine);

// Traps in a configuration of Accelerate; empty for any other text.
std::vector<TrapHit> TrapsInYaml(const std::string& text, const std::string& file, const ScriptMachine& machine);

}  // namespace fulldeck::lint
