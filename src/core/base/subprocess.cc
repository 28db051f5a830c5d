#include "base/subprocess.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>

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
bool WireDescriptors(std::vector<Wiring>& wirings, int null_fd, int first_free) {
  // First move all sources above the target numbers, so that no dup2 below overwrites a source that is still needed.
  for (Wiring& wiring : wirings) {
    wiring.source = fcntl(wiring.source < 0 ? null_fd : wiring.source, F_DUPFD_CLOEXEC, first_free);
    if (wiring.source < 0) return false;
  }
  for (const Wiring& wiring : wirings) {
    if (dup2(wiring.source, wiring.target) < 0) return false;
  }
  return true;
}

// Runs in the child; the parent reads the pipe. The kernel reports a descriptor number above the limit as EINVAL or
// EBADF; the actual cause is that the limit of open files is too low.
[[noreturn]] void ReportAndExit(int report, int error, bool descriptors) {
  if (descriptors && (error == EINVAL || error == EBADF)) error = EMFILE;
  [[maybe_unused]] const auto written = write(report, &error, sizeof error);
  _exit(127);
}

constexpr std::size_t kPidDigits = 10;

// Writes the digits and the terminating zero to a buffer of kPidDigits bytes. No allocation: this runs before exec.
void WritePid(char* text, pid_t pid) {
  char digits[kPidDigits];
  std::size_t count = 0;
  for (auto left = static_cast<unsigned>(pid); left > 0 && count < kPidDigits; left /= 10) {
    digits[count++] = static_cast<char>('0' + left % 10);
  }
  for (std::size_t i = 0; i < count; ++i) text[i] = digits[count - 1 - i];
  text[count] = '\0';
}

// Forks, if possible with the child created inside the cgroup: moving it there later makes the kernel wait.
// `cgroup_error` is the reason if the child is not inside.
pid_t ForkInto(int cgroup, int* cgroup_error) {
#ifdef SYS_clone3
  struct {
    std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
        cgroup;
  } arguments{};
  constexpr std::uint64_t kIntoCgroup = 0x200000000;
  if (cgroup >= 0) {
    arguments.flags = kIntoCgroup;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<std::uint64_t>(cgroup);
    const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid >= 0) return static_cast<pid_t>(pid);
    *cgroup_error = errno;
  }
#else
  if (cgroup >= 0) *cgroup_error = ENOSYS;
#endif
  return fork();
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
  auto started = StartProcess(options);
  if (!started) return started.error();
  return WaitForExec(*started);
}

Result<StartedProcess> StartProcess(const SpawnOptions& options) {
  FULLDECK_CHECK(!options.arguments.empty());
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
  std::string pid_entry;
  if (options.environment) {
    variables = Pointers(*options.environment);
    if (!options.pid_variable.empty()) {
      pid_entry = options.pid_variable + "=" + std::string(kPidDigits, '0');
      variables.insert(variables.end() - 1, pid_entry.data());
    }
  }
  char** const environment = options.environment ? variables.data() : environ;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
  }
  const pid_t parent = getpid();

  int cgroup_error = 0;
  const pid_t pid = ForkInto(options.clone_into_cgroup, &cgroup_error);
  if (pid < 0) return ErrnoError("cannot start " + options.arguments[0] + ": fork");
  if (pid == 0) {
    // The error pipe must be above the wired numbers, or dup2 would close it.
    const int report = fcntl(errors->write_end.get(), F_DUPFD_CLOEXEC, first_free);
    if (report < 0) ReportAndExit(errors->write_end.get(), errno, true);
    if (options.new_session) setsid();
    if (options.parent_death_signal != 0) {
      prctl(PR_SET_PDEATHSIG, options.parent_death_signal);
      if (getppid() != parent) _exit(127);
    }
    for (const int cgroup : options.join_cgroups) {
      if (write(cgroup, "0", 1) == 1) continue;
      const int error = -errno;  // negative: not fatal
      [[maybe_unused]] const auto reported = write(report, &error, sizeof error);
    }
    if (!options.cpus.empty()) sched_setaffinity(0, sizeof cpus, &cpus);
    if (!pid_entry.empty()) WritePid(pid_entry.data() + pid_entry.size() - kPidDigits, getpid());
    if (!WireDescriptors(wirings, null_fd.get(), first_free)) ReportAndExit(report, errno, true);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    execve(arguments[0], arguments.data(), environment);
    ReportAndExit(report, errno, false);
  }
  return StartedProcess{pid, options.arguments[0], std::move(errors->read_end), cgroup_error};
}

Result<pid_t> WaitForExec(StartedProcess& process) {
  int error = 0;
  ssize_t got = 0;
  for (;;) {
    got = read(process.exec_error.get(), &error, sizeof error);
    if (got == static_cast<ssize_t>(sizeof error) && error < 0) {
      process.cgroup_error = -error;
    } else if (got >= 0 || errno != EINTR) {
      break;
    }
  }
  if (got == static_cast<ssize_t>(sizeof error)) {
    while (waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return ErrnoError("cannot start " + process.program, error);
  }
  return process.pid;
}

}  // namespace fulldeck::base
