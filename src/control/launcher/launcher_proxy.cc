#include "launcher/launcher_proxy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/check.h"
#include "base/event_loop.h"
#include "base/files/system_root.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "diagnosis/exit_status.h"
#include "job/runs/cgroup_folder.h"
#include "launcher/process_tree.h"
#include "launcher/run_plan.h"
#include "launcher/supervisor.h"
#include "wire/exit_codes.h"

namespace fulldeck::launcher {
namespace {

using base::Severity;

// Added to the ranks' grace period and the kernel's time to kill them: time to hear from other nodes, to report, and to
// flush the logs.
constexpr std::chrono::milliseconds kSupervisorTimeout{10'000};

bool IsIgnored(int signal_number) {
  struct sigaction action {};
  return sigaction(signal_number, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
         action.sa_handler == SIG_IGN;
}

CrashCleanupInfo* MakeCleanupInfo() {
  void* memory = mmap(nullptr, sizeof(CrashCleanupInfo), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FULLDECK_CHECK(memory != MAP_FAILED);
  return static_cast<CrashCleanupInfo*>(memory);
}

// Descriptors of the caller beyond the standard streams (a lock, the end of a pipe) must not reach the ranks or a
// background run that outlives the caller. The front of a foreground run keeps them: `exec flock --no-fork LOCK
// fulldeck run ...` holds the lock as long as the run lives. They are recognized by the missing close-on-exec flag,
// which all our descriptors have.
void CloseCallersDescriptors() {
  std::vector<int> open_ones;
  for (const std::string& name : base::SystemRoot().List("/proc/self/fd")) {
    const auto fd = base::ParseInteger<int>(name);
    if (fd && *fd > STDERR_FILENO) open_ones.push_back(*fd);
  }
  for (const int fd : open_ones) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) close(fd);
  }
}

// Resets inherited signal dispositions and closed standard descriptors.
void ResetInheritedState() {
  // If SIGCHLD is ignored, the kernel reaps children itself, and the exit of a rank is never reported.
  signal(SIGCHLD, SIG_DFL);
  // A closed standard descriptor would be reused for the next file that is opened, and the ranks would inherit that
  // file.
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int opened = open("/dev/null", O_RDWR);
  }
}

int RefuseRun(wire::ExitCode code, const std::string& message) {
  base::Log(Severity::kError, message);
  return static_cast<int>(code);
}

void ShowDryRun(const RunPlan& plan) {
  for (const std::string& line : DescribePlacement(plan)) base::Log(Severity::kInfo, line);
  for (const std::string& note : plan.notes) base::Log(Severity::kInfo, note);
  std::string line;
  for (const std::string& word : plan.program) line += " " + word;
  base::Log(Severity::kInfo, "each rank would run:" + line);
  for (const std::string& variable : DescribeEnvironment(plan)) base::Log(Severity::kInfo, "  " + variable);
}

int Supervise(const job::LaunchFlags& flags, const base::Environment& environment,
              const std::optional<job::ClusterPlace>& cluster, CrashCleanupInfo& note, base::UniqueFd started_notice) {
  wire::ExitCode code = wire::ExitCode::kFailed;
  auto plan = MakeRunPlan(flags, environment, cluster, &code);
  if (!plan) return RefuseRun(code, plan.error().message);
  if (flags.dry_run) {
    ShowDryRun(**plan);
    return 0;
  }
  base::EventLoop loop(base::SteadyClock::Instance(), base::EventLoop::ChildEvents::kSigchld);
  Supervisor supervisor(loop, std::move(*plan), note, std::move(started_notice));
  return supervisor.Run();
}

// The supervisor died without cleaning up. Invariant: every process of the run is now a descendant of this subreaper,
// in the run's cgroup, or both. Kill first and log last: stderr may be a pipe that is not read.
void CleanUpAfterSupervisor(const CrashCleanupInfo& note, const std::string& why) {
  const int killed = SignalDescendants(getpid(), SIGKILL);
  if (note.cgroup[0] != '\0') job::KillCgroup(note.cgroup);
  const base::Clock& clock = base::SteadyClock::Instance();
  const base::TimePoint deadline = clock.Now() + std::chrono::seconds(2);
  while (HasChildren() && clock.Now() < deadline) {
    SignalDescendants(getpid(), SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
  if (note.cgroup[0] != '\0') job::RemoveCgroup(note.cgroup);
  if (note.registry_entry[0] != '\0') unlink(note.registry_entry);
  if (!why.empty()) base::Log(Severity::kError, why);
  if (killed > 0) {
    base::Log(Severity::kError,
              fmt::format("run {}: its {} process{} killed", note.run_id, killed, killed == 1 ? " was" : "es were"));
  }
  for (const TreeProcess& process : Descendants(getpid())) {
    base::Log(Severity::kError, fmt::format("pid {} ({}) cannot be killed; it is in state {}", process.pid,
                                            process.command, process.state));
  }
}

// Forwards signals to the supervisor until it exits.
int WaitFor(pid_t supervisor, const job::LaunchFlags& flags, CrashCleanupInfo& note) {
  base::EventLoop loop(base::SteadyClock::Instance(), base::EventLoop::ChildEvents::kSigchld);
  std::optional<int> status;
  int gave_up_after = 0;  // the stop signal after which the supervisor was killed
  base::EventLoop::Id timeout = 0;
  std::optional<base::TimePoint> gives_up_at;
  const std::vector<int> stops = StopSignals(flags);
  const auto watching = loop.OnSignals(TakenSignals(flags), [&](int signal_number) {
    if (status) return;
    const bool stop = std::find(stops.begin(), stops.end(), signal_number) != stops.end();
    // Invariant: counted before the signal is sent, so the supervisor sees a count that includes the signal that it
    // handles.
    if (stop) ++note.stops_forwarded;
    kill(supervisor, stop ? signal_number : ForwardedAs(signal_number));
    if (!stop) return;
    // A stopped supervisor is continued so that it can handle the signal. An unresponsive one (in the kernel, under a
    // debugger) gets the time that it needs to stop the ranks. A second stop request skips the grace period.
    kill(supervisor, SIGCONT);
    const base::Duration wait =
        (gives_up_at ? std::chrono::milliseconds(0) : flags.grace) + kKillTimeout + kSupervisorTimeout;
    const base::TimePoint deadline = loop.clock().Now() + wait;
    // Invariant: a later signal can only shorten the deadline.
    if (gives_up_at && *gives_up_at <= deadline) return;
    gives_up_at = deadline;
    loop.Remove(timeout);
    timeout = loop.After(wait, [&, signal_number] {
      gave_up_after = signal_number;
      kill(supervisor, SIGKILL);
      base::Log(Severity::kError, fmt::format("the supervisor (pid {}) did not answer: it was killed", supervisor));
      // A supervisor that hangs in the kernel does not end by SIGKILL either; its ranks must still be ended.
      loop.After(kKillTimeout, [&] { loop.Stop(); });
    });
  });
  if (!watching) return RefuseRun(wire::ExitCode::kFailed, watching.error().message);
  const auto child = loop.WhenExited(supervisor, [&](std::optional<int> wait_status) {
    status = wait_status.value_or(0);
    loop.Stop();
  });
  if (!child) return RefuseRun(wire::ExitCode::kFailed, child.error().message);
  loop.Run();
  // The supervisor survived SIGKILL (it is blocked in the kernel). Its ranks are still descendants of this process.
  if (!status) {
    CleanUpAfterSupervisor(note, "");
    return 128 + gave_up_after;
  }
  const diagnosis::ExitStatus exit_status{*status};
  if (exit_status.signal_number() != 0) {
    CleanUpAfterSupervisor(note, fmt::format("the supervisor (pid {}) was {}", supervisor, exit_status.ToString()));
    if (gave_up_after != 0) return 128 + gave_up_after;
  }
  return exit_status.exit_code();
}

// `started_notice` is valid in a detached run: a byte is written to it once the ranks have started.
int RunBoth(const job::LaunchFlags& flags, const base::Environment& environment,
            const std::optional<job::ClusterPlace>& cluster, base::UniqueFd started_notice) {
  // Invariant: the front is a subreaper before the supervisor exists. Whenever the supervisor dies, its children become
  // children of the front, which can find and kill them.
  const auto subreaper = BecomeSubreaper();
  if (!subreaper) return RefuseRun(wire::ExitCode::kFailed, subreaper.error().message);
  signal(SIGPIPE, SIG_IGN);
  // A log that reaches the file size limit is an error of that file and must not kill the launcher. The ranks inherit
  // this.
  signal(SIGXFSZ, SIG_IGN);
  CrashCleanupInfo* note = MakeCleanupInfo();

  // Block before the fork: a signal that arrives in between stays pending until a handler reads it.
  const std::vector<int> signals = TakenSignals(flags);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal_number : signals) sigaddset(&set, signal_number);
  for (const int own : {ProxyDiedSignal(), ForwardedAs(SIGUSR1), ForwardedAs(SIGUSR2)}) sigaddset(&set, own);
  sigprocmask(SIG_BLOCK, &set, nullptr);

  const pid_t front = getpid();
  const pid_t supervisor = fork();
  if (supervisor < 0) return RefuseRun(wire::ExitCode::kFailed, base::ErrnoError("fork").message);
  if (supervisor == 0) {
    // A session of its own: the terminal's Ctrl-C reaches only the front, which forwards it.
    setsid();
    prctl(PR_SET_PDEATHSIG, ProxyDiedSignal());
    // The front may have died before the prctl; then no signal will come.
    if (getppid() != front) _exit(1);
    CloseCallersDescriptors();
    const auto own_subreaper = BecomeSubreaper();
    _exit(own_subreaper ? Supervise(flags, environment, cluster, *note, std::move(started_notice)) : 1);
  }
  if (started_notice.valid()) {
    started_notice.Reset();
    ReleaseTerminal();
  }
  return WaitFor(supervisor, flags, *note);
}

}  // namespace

// The mapping is initially zero: a field that the supervisor's death left half-written is still terminated.
void SetCleanupField(char* field, std::size_t size, const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

void ReleaseTerminal() {
  const base::UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing.valid()) return;
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing.get(), standard);
}

int ProxyDiedSignal() {
  return SIGRTMIN + 7;
}

int ForwardedAs(int signal_number) {
  if (signal_number == SIGUSR1) return SIGRTMIN + 8;
  if (signal_number == SIGUSR2) return SIGRTMIN + 9;
  return signal_number;
}

std::vector<int> StopSignals(const job::LaunchFlags& flags) {
  std::vector<int> signals = flags.stop_signals;
  if (signals.empty()) signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  if (IsIgnored(SIGHUP)) std::erase(signals, SIGHUP);
  return signals;
}

std::vector<int> TakenSignals(const job::LaunchFlags& flags) {
  std::vector<int> signals = StopSignals(flags);
  for (const int passed : {SIGUSR1, SIGUSR2}) {
    if (std::find(signals.begin(), signals.end(), passed) == signals.end()) signals.push_back(passed);
  }
  return signals;
}

int RunLauncherProxy(const job::LaunchFlags& flags, const base::Environment& environment,
                     const std::optional<job::ClusterPlace>& cluster) {
  ResetInheritedState();
  if (!flags.detach) return RunBoth(flags, environment, cluster, base::UniqueFd());

  // The background process holds the write end of the pipe until its ranks have started or it exits.
  auto pipe = base::MakePipe();
  if (!pipe) return RefuseRun(wire::ExitCode::kFailed, pipe.error().message);
  const pid_t background = fork();
  if (background < 0) return RefuseRun(wire::ExitCode::kFailed, base::ErrnoError("fork").message);
  if (background == 0) {
    setsid();
    CloseCallersDescriptors();
    pipe->read_end.Reset();
    _exit(RunBoth(flags, environment, cluster, std::move(pipe->write_end)));
  }
  pipe->write_end.Reset();
  char started = 0;
  ssize_t got = 0;
  do {
    got = read(pipe->read_end.get(), &started, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 1) return 0;
  int status = 0;
  while (waitpid(background, &status, 0) < 0 && errno == EINTR) {
  }
  return diagnosis::ExitStatus{status}.exit_code();
}

}  // namespace fulldeck::launcher
