// The cgroup that holds the ranks of a run, as a folder: what is in it, and how it ends. For the launcher of the run,
// and for whoever cleans up after a launcher that was killed.
#pragma once

#include <string>
#include <vector>

#include "wire/process_identity.h"

namespace fulldeck::job {

// What somebody calls a cgroup is killed only when it is one.
bool IsCgroup(const std::string& folder);

// The folder and those below it, the deepest last.
std::vector<std::string> CgroupTree(const std::string& cgroup);

// Living processes, zombies left out.
std::vector<wire::ProcessIdentity> ProcessesIn(const std::vector<std::string>& folders);

// SIGKILL to everything in it, at once where the kernel can (v2 since 5.14); else to each process, to be called again
// until it is empty, as they may still fork. Thaws what v1 has frozen. Does nothing where the caller itself is in it.
void KillCgroup(const std::string& cgroup);

// The folders, which must be empty. False when one is left.
bool RemoveCgroup(const std::string& cgroup);

}  // namespace fulldeck::job
