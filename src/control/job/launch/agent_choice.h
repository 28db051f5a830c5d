// Whether the rank agent may be preloaded into a program. Reads the program's file; nothing is run.
// Preloading into the wrong program does harm: one with AddressSanitizer refuses to start, one for another machine or C
// library prints errors of the loader, and a static or privileged one ignores it. What cannot be understood is a no.
#pragma once

#include <string>

#include "base/environment.h"
#include "base/files/system_root.h"

namespace fulldeck::job {

struct AgentVerdict {
  bool may_preload = false;
  std::string reason;  // a sentence for people when it may not: "/opt/x is linked statically"; else empty
};

// `program_path`: absolute, as it will be given to execve. A script is judged by its interpreter, and one of
// "#!/usr/bin/env python3" by the python3 that PATH of `environment` gives.
AgentVerdict MayPreload(const std::string& program_path, const base::SystemRoot& root = base::SystemRoot(),
                        const base::Environment& environment = {});

}  // namespace fulldeck::job
