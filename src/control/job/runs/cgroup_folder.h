// The cgroup that holds the ranks of a run, as a folder: its processes, and how to kill and remove it. For the
// launcher of the run, and for the cleanup after a launcher that was killed.
#pragma once

#include <string>
#include <vector>

#include "wire/process_identity.h"

namespace fulldeck::job {

// Check this before killing: a recorded path is killed only if it is a cgroup.
bool IsCgroup(const std::string& folder);

// The folder and those below it, the deepest last.
std::vector<std::string> CgroupTree(const std::string& cgroup);

// Running processes, without zombies.
std::vector<wire::ProcessIdentity> ProcessesIn(const std::vector<std::string>& folders);

// Sends SIGKILL to everything in it, atomically if the kernel supports it (v2 since 5.14). Otherwise signals each
// process; call it again until the cgroup is empty, as the processes may still fork. Thaws processes that v1 has
// frozen. Does nothing if the caller itself is in the cgroup.
void KillCgroup(const std::string& cgroup);

// Removes the folders, which must be empty. Returns false if one remains.
bool RemoveCgroup(const std::string& cgroup);

}  // namespace fulldeck::job
