// What remains of a run whose launcher was killed: ranks that still run, processes in its cgroups, the cgroups, its
// entry. Found and removed by recorded identity, never by name.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "job/runs/run_registry.h"
#include "wire/process_identity.h"

namespace fulldeck::job {

struct RunOrphans {
  // Each once: recorded ranks, the front, processes in the run's cgroups, and processes of this user that were
  // started with the run's variables.
  std::vector<wire::ProcessIdentity> processes;
  std::vector<std::string> cgroups;  // folders that still exist
  // Processes of this user in the process group of a rank that is gone, without the run's variables. They almost
  // certainly belong to the run: they do not only if the group died out and its number was reused. So they are
  // reported and not killed.
  std::vector<wire::ProcessIdentity> unsure;

  bool empty() const { return processes.empty() && cgroups.empty() && unsure.empty(); }
};

// A run from before a reboot has no orphans, even if its pids are in use again.
RunOrphans FindOrphans(const RunRecord& record);

struct CleanUpReport {
  int killed = 0;  // processes
  int removed_cgroups = 0;
  std::vector<std::string> problems;  // whole sentences; empty: nothing remains, the entry is removed
};

// Kills the remaining processes with SIGKILL, because the launcher that could have sent SIGTERM is gone, and removes
// the run's cgroups and its entry. A rank is killed with its process group. Takes at most `timeout`; a process that
// does not die by then is a problem, and the entry stays.
CleanUpReport CleanUp(const RunRegistry& registry, const RunRegistry::Entry& entry, base::Duration timeout);

}  // namespace fulldeck::job
