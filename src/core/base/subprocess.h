// Starts a program. Passive: it neither waits nor reads; use an EventLoop for that.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::base {

struct SpawnOptions {
  std::vector<std::string> arguments;                   // arguments[0] is the path of the program; PATH is not searched
  std::optional<std::vector<std::string>> environment;  // "NAME=value"; nullopt: the environment of this process
  // Descriptors of the child: {number in the child, descriptor here}. 0, 1 and 2 are /dev/null unless listed;
  // descriptors opened without O_CLOEXEC are inherited as usual.
  std::vector<std::pair<int, int>> descriptors;
  bool new_session = true;      // own session and process group, so that the whole tree can be signaled
  int parent_death_signal = 0;  // sent to the child when the thread that started it exits; 0 for none
  std::vector<int> cpus;        // CPUs that the child may run on; empty: those of this process
  std::string pid_variable;  // NAME: the child finds its own pid in this variable, which `environment` must not contain
  // An open cgroup v2 folder in which the child is created (kernels from 5.7), and open cgroup.procs files that it
  // joins before exec. Joining is best effort: a child that may not join starts anyway, and StartedProcess reports the
  // error.
  int clone_into_cgroup = -1;
  std::vector<int> join_cgroups;
};

// Returns the pid of the child, which the caller must reap. Errors of exec in the child (no such file, no permission,
// bad interpreter) are returned here. Blocked signals are unblocked in the child; ignored ones stay ignored, except
// SIGPIPE.
Result<pid_t> Spawn(const SpawnOptions& options);

// The same in two steps, so that several children reach exec concurrently: start all, then wait for each.
struct StartedProcess {
  pid_t pid = 0;
  std::string program;
  UniqueFd exec_error;   // closed by a successful exec
  int cgroup_error = 0;  // errno of a cgroup that the child could not join; final after WaitForExec
};
Result<StartedProcess> StartProcess(const SpawnOptions& options);
// If it fails, the child has already been reaped.
Result<pid_t> WaitForExec(StartedProcess& process);

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

// Both ends are close-on-exec and blocking: programs expect blocking pipes.
Result<Pipe> MakePipe();

// For the end that an event loop reads.
Result<void> SetNonBlocking(int fd);

}  // namespace fulldeck::base
