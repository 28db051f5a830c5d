// Whether the rank agent may be preloaded into a program. Reads the program's file; runs nothing. Preloading into the
// wrong program does harm: one with AddressSanitizer refuses to start, one for another architecture or C library
// prints loader errors, and a static or privileged one ignores it. If the file cannot be understood, the answer is
// no.
#pragma once

#include <string>

#include "base/environment.h"
#include "base/files/system_root.h"

namespace fulldeck::job {

struct AgentVerdict {
  bool may_preload = false;
  // if it may not: a human-readable sentence such as "/opt/x is linked statically"; otherwise empty
  std::string reason;
};

// `program_path`: absolute, as it will be passed to execve. A script is judged by its interpreter, and one with
// "#!/usr/bin/env python3" by the python3 on the PATH of `environment`.
AgentVerdict MayPreload(const std::string& program_path, const base::SystemRoot& root = base::SystemRoot(),
                        const base::Environment& environment = {});

}  // namespace fulldeck::job
