// The descendants of this process. Because the launcher is a subreaper, orphaned descendants are reparented to it. All
// processes that a rank started, including daemons, are therefore found by walking the tree; none is searched by name.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fulldeck::launcher {

// Makes this process the new parent of orphaned descendants. Survives exec, but is not inherited by fork.
base::Result<void> BecomeSubreaper();

struct TreeProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';     // as in /proc/PID/stat: R S D T Z …
  std::string command;  // short name, printable
};

// Every living descendant of `ancestor`, without zombies. Reads /proc once.
std::vector<TreeProcess> Descendants(pid_t ancestor);

// Whether this process has any child, including zombies. Much cheaper than a walk. A subreaper without children has no
// descendants either.
bool HasChildren();

// Sends the signal to every living descendant except `spared` and their descendants. Repeats until a walk finds no
// process that was not signaled yet, so that a forking tree cannot escape. Returns the number of signaled processes.
int SignalDescendants(pid_t ancestor, int signal_number, const std::vector<pid_t>& spared = {});

// Whether the process has a handler for the signal (SigCgt).
bool CatchesSignal(pid_t pid, int signal_number);

}  // namespace fulldeck::launcher
