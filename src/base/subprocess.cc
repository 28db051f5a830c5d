#include "base/subprocess.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/check.h"

namespace fulldeck::base {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Wiring {
  int target;
  int source;
};

// Runs between fork and exec: only async-signal-safe calls, no allocation.
void WireDescriptors(std::vector<Wiring>& wirings, int null_fd, int first_free) {
  // First away from the low numbers, so that no dup2 below overwrites a source that is still needed.
  for (Wiring& wiring : wirings) {
    wiring.source = fcntl(wiring.source < 0 ? null_fd : wiring.source, F_DUPFD_CLOEXEC, first_free);
    if (wiring.source < 0) return;
  }
  for (const Wiring& wiring : wirings) {
    if (dup2(wiring.source, wiring.target) < 0) return;
  }
}

}  // namespace

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError("pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<void> SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return ErrnoError("descriptor " + std::to_string(fd));
  return {};
}

Result<pid_t> Spawn(const SpawnOptions& options) {
  CHECK(!options.arguments.empty());
  std::vector<Wiring> wirings;
  int first_free = 3;
  for (const int standard : {0, 1, 2}) wirings.push_back({standard, -1});
  for (const std::pair<int, int>& wanted : options.descriptors) {
    const auto same_target = [&](const Wiring& wiring) { return wiring.target == wanted.first; };
    const auto known = std::find_if(wirings.begin(), wirings.end(), same_target);
    if (known != wirings.end()) {
      known->source = wanted.second;
    } else {
      wirings.push_back({wanted.first, wanted.second});
    }
    first_free = std::max(first_free, wanted.first + 1);
  }
  const UniqueFd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd.valid()) return ErrnoError("/dev/null");
  auto errors = MakePipe();
  if (!errors) return errors.error();

  const std::vector<char*> arguments = Pointers(options.arguments);
  std::vector<char*> variables;
  if (options.environment) variables = Pointers(*options.environment);
  char** const environment = options.environment ? variables.data() : environ;
  const pid_t parent = getpid();

  const pid_t pid = fork();
  if (pid < 0) return ErrnoError("cannot start " + options.arguments[0] + ": fork");
  if (pid == 0) {
    // The error pipe must lie above the wired numbers, or dup2 would close it.
    const int report = fcntl(errors->write_end.get(), F_DUPFD_CLOEXEC, first_free);
    if (options.new_session) setsid();
    if (options.parent_death_signal != 0) {
      prctl(PR_SET_PDEATHSIG, options.parent_death_signal);
      if (getppid() != parent) _exit(127);
    }
    WireDescriptors(wirings, null_fd.get(), first_free);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    execve(arguments[0], arguments.data(), environment);
    const int error = errno;
    [[maybe_unused]] const auto written = write(report, &error, sizeof error);
    _exit(127);
  }

  errors->write_end.Reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(errors->read_end.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error)) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return ErrnoError("cannot start " + options.arguments[0], error);
  }
  return pid;
}

}  // namespace fulldeck::base
