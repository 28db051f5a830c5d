// The descendants of this process. As a subreaper it is the parent of every orphan among them, so that whatever a rank
// started, daemons included, is found from here; nothing is found by name.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fulldeck::launcher {

// From now on orphans below this process become its children. Kept over exec, not over fork.
base::Result<void> BecomeSubreaper();

struct TreeProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';     // as /proc/PID/stat gives it: R S D T Z …
  std::string command;  // short name, printable
};

// Every living descendant of `ancestor`, zombies left out. Reads /proc once.
std::vector<TreeProcess> Descendants(pid_t ancestor);

// Whether this process has any child, zombies counted. Much cheaper than a walk; without a child a subreaper has no
// descendant either.
bool HasChildren();

// Sends the signal to every living descendant except `spared` and their descendants, again and again until a walk finds
// none that was not signaled yet: a tree that forks cannot outrun it. Returns how many it reached.
int SignalDescendants(pid_t ancestor, int signal_number, const std::vector<pid_t>& spared = {});

// Whether the process catches the signal itself (SigCgt): neither ignored nor left to the default action.
bool CatchesSignal(pid_t pid, int signal_number);

}  // namespace fulldeck::launcher
