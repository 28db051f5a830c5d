// Starts a program. Passive: it neither waits nor reads; an EventLoop does.
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
  std::optional<std::vector<std::string>> environment;  // "NAME=value"; nothing means this process's own
  // Descriptors of the child: {number in the child, descriptor here}. 0, 1 and 2 are /dev/null unless named; everything
  // opened without O_CLOEXEC is inherited as ever.
  std::vector<std::pair<int, int>> descriptors;
  bool new_session = true;      // its own session and process group, so that the whole tree can be signalled
  int parent_death_signal = 0;  // sent to the child when the starting thread ends; 0 for none
  std::vector<int> cpus;        // processors that it may run on; empty: those of this process
  std::string pid_variable;     // NAME: the child finds its own pid in this variable, which `environment` must not hold
  // An open cgroup v2 folder that the child is born into (kernels from 5.7), and open cgroup.procs files that it enters
  // before exec. Entering is no condition: a child that may not enter starts all the same, and StartedProcess reports
  // it.
  int clone_into_cgroup = -1;
  std::vector<int> join_cgroups;
};

// The child's pid, which the caller must reap. Errors that exec meets in the child (no such file, no permission, bad
// interpreter) are returned here. Blocked signals are unblocked in the child; ignored ones stay ignored, except
// SIGPIPE.
Result<pid_t> Spawn(const SpawnOptions& options);

// The same in two steps, so that several children reach exec at the same time: start all, then wait for each.
struct StartedProcess {
  pid_t pid = 0;
  std::string program;
  UniqueFd exec_error;   // closes on a good exec
  int cgroup_error = 0;  // errno of a cgroup that the child is not in; complete after WaitForExec
};
Result<StartedProcess> StartProcess(const SpawnOptions& options);
// On an error the child has been reaped.
Result<pid_t> WaitForExec(StartedProcess& process);

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

// Both ends close-on-exec. Both block: a child does not expect anything else.
Result<Pipe> MakePipe();

// For the end that an event loop reads.
Result<void> SetNonBlocking(int fd);

}  // namespace fulldeck::base
