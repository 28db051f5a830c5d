// The front: the process that the user's shell sees. It forks the supervisor, passes signals on to it, and waits. Both
// are subreapers, and the supervisor gets a signal when the front dies: whichever of the two is killed, the other one
// ends every process of the run. Both killed at once is covered by the run's cgroup, where there is one (`fulldeck
// stop`).
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "job/launch/cluster.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::launcher {

// What the two tell each other, in memory that both have (zero at first): the supervisor, what to clean up when it is
// killed; the front, how often somebody asked it to stop. A cluster's manager may signal every process of a job, so
// that the supervisor gets a signal itself and once more from the front: that is one request.
struct CrashCleanupInfo {
  std::atomic<int> stops_forwarded;
  char cgroup[1024];
  char registry_entry[1024];
  char run_id[256];
};
void SetCleanupField(char* field, std::size_t size, const std::string& text);

// Standard input, output and error become /dev/null, so that whoever started us may close them.
void ReleaseTerminal();

// Sent to the supervisor by the kernel when the front dies.
int ProxyDiedSignal();

// By which signal the front passes SIGUSR1 and SIGUSR2 on, so that the supervisor can tell them from a copy that came
// straight to it (signal_deduplicator.h). Every other signal is passed on as it is.
int ForwardedAs(int signal_number);

// The signals that stop a run: those that the flags name, without SIGHUP where it was ignored at the start (nohup).
std::vector<int> StopSignals(const job::LaunchFlags& flags);
// Those and the signals that are passed on to the ranks: all that the launcher takes from outside.
std::vector<int> TakenSignals(const job::LaunchFlags& flags);

// Runs `flags` to the end and returns the exit code. With --detach it returns once the ranks have started.
int RunLauncherProxy(const job::LaunchFlags& flags, const base::Environment& environment,
                     const std::optional<job::ClusterPlace>& cluster);

}  // namespace fulldeck::launcher
