// What a run whose launcher was killed leaves behind: ranks that still live, processes in its cgroups, the cgroups, its
// entry. Found and removed by recorded identity, never by name.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "job/runs/run_registry.h"
#include "wire/process_identity.h"

namespace fulldeck::job {

struct RunOrphans {
  std::vector<wire::ProcessIdentity> processes;  // each once: recorded ranks, front, what its cgroups hold,
                                                 // and own processes that were started with the run's variables
  std::vector<std::string> cgroups;              // folders that still exist
  // Own processes in the process group of a rank that is gone, without the run's variables. Almost certainly the run's:
  // only if the group died out and its number was given away since are they not. So they are reported, and not killed.
  std::vector<wire::ProcessIdentity> unsure;

  bool empty() const { return processes.empty() && cgroups.empty() && unsure.empty(); }
};

// Of a run from before a reboot nothing remains, whatever has its pids now.
RunOrphans FindOrphans(const RunRecord& record);

struct CleanUpReport {
  int killed = 0;  // processes
  int removed_cgroups = 0;
  std::vector<std::string> problems;  // whole sentences; none: nothing is left, the entry is removed
};

// Kills what remains (SIGKILL: whoever could have asked nicely is gone) and removes the run's cgroups and its entry. A
// rank is killed with its process group. Takes at most `timeout`; what does not die by then is a problem, and the
// entry stays.
CleanUpReport CleanUp(const RunRegistry& registry, const RunRegistry::Entry& entry, base::Duration timeout);

}  // namespace fulldeck::job
