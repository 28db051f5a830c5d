// The front: the process that the user's shell sees. It forks the supervisor, forwards signals to it, and waits for it.
// Both are subreapers, and the supervisor gets a signal when the front dies: if either of them is killed, the other one
// ends every process of the run. If both are killed, only the run's cgroup (if one could be created) identifies the
// processes of the run; `fulldeck stop` uses it.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "job/launch/cluster.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::launcher {

// Memory shared by front and supervisor, initially zero. The supervisor writes what to clean up if it is killed. The
// front counts stop requests: a scheduler may signal every process of a job, so that the supervisor receives the signal
// directly and again from the front; that is one request.
struct CrashCleanupInfo {
  std::atomic<int> stops_forwarded;
  char cgroup[1024];
  char registry_entry[1024];
  char run_id[256];
};
void SetCleanupField(char* field, std::size_t size, const std::string& text);

// Redirects standard input, output and error to /dev/null, so that the process that started us can close them.
void ReleaseTerminal();

// The signal that the kernel sends to the supervisor when the front dies.
int ProxyDiedSignal();

// The signal that the front uses to forward SIGUSR1 and SIGUSR2, so that the supervisor can distinguish a forwarded
// signal from a direct copy (signal_deduplicator.h). All other signals are forwarded unchanged.
int ForwardedAs(int signal_number);

// The signals that stop a run: those that the flags name, except SIGHUP if it was ignored at the start (nohup).
std::vector<int> StopSignals(const job::LaunchFlags& flags);
// Stop signals plus the signals that are forwarded to the ranks: every signal that the launcher handles.
std::vector<int> TakenSignals(const job::LaunchFlags& flags);

// Runs `flags` to completion and returns the exit code. With --detach it returns once the ranks have started.
int RunLauncherProxy(const job::LaunchFlags& flags, const base::Environment& environment,
                     const std::optional<job::ClusterPlace>& cluster);

}  // namespace fulldeck::launcher
