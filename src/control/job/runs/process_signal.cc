#include "job/runs/process_signal.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/files/unique_fd.h"

namespace fulldeck::job {
namespace {

// The same numbers on every architecture; older headers lack the names.
constexpr long kPidfdSendSignal = 424;
constexpr long kPidfdOpen = 434;
// How often processes are polled on kernels without pidfds.
constexpr std::chrono::milliseconds kPollInterval{20};

base::UniqueFd OpenPidfd(int pid) {
  return base::UniqueFd(static_cast<int>(syscall(kPidfdOpen, pid, 0U)));
}

}  // namespace

SignalOutcome SendSignal(const wire::ProcessIdentity& process, int signal_number) {
  if (process.pid <= 1 || process.pid == getpid() || process.start_ticks == 0) return SignalOutcome::kGone;
  const base::UniqueFd handle = OpenPidfd(process.pid);
  if (!wire::IsAlive(process)) return SignalOutcome::kGone;
  long sent = -1;
  if (handle.valid()) sent = syscall(kPidfdSendSignal, handle.get(), signal_number, nullptr, 0U);
  if (!handle.valid() || (sent != 0 && errno == ENOSYS)) sent = kill(process.pid, signal_number);
  if (sent == 0) return SignalOutcome::kSent;
  return errno == EPERM ? SignalOutcome::kRefused : SignalOutcome::kGone;
}

std::vector<wire::ProcessIdentity> WaitUntilGone(std::vector<wire::ProcessIdentity> processes, base::Duration timeout) {
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + timeout;
  for (;;) {
    processes.erase(std::remove_if(processes.begin(), processes.end(),
                                   [](const wire::ProcessIdentity& process) { return !wire::IsAlive(process); }),
                    processes.end());
    const base::Duration left = deadline - base::SteadyClock::Instance().Now();
    if (processes.empty() || left <= base::Duration(0)) return processes;
    // Wait for any of them first: the loop ends when all have ended.
    const base::UniqueFd handle = OpenPidfd(processes.front().pid);
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(
        handle.valid() ? std::min<base::Duration>(left, std::chrono::hours(1))
                       : std::min<base::Duration>(left, kPollInterval));
    pollfd ended{handle.get(), POLLIN, 0};
    poll(handle.valid() ? &ended : nullptr, handle.valid() ? 1 : 0, static_cast<int>(wait.count()));
  }
}

std::vector<StopOutcome> StopProcesses(const std::vector<wire::ProcessIdentity>& processes, base::Duration grace,
                                       base::Duration timeout) {
  std::vector<StopOutcome> outcomes;
  std::vector<wire::ProcessIdentity> signaled;
  for (const wire::ProcessIdentity& process : processes) {
    const SignalOutcome sent = SendSignal(process, SIGTERM);
    if (sent == SignalOutcome::kSent) signaled.push_back(process);
    outcomes.push_back(sent == SignalOutcome::kSent   ? StopOutcome::kEnded
                       : sent == SignalOutcome::kGone ? StopOutcome::kGone
                                                      : StopOutcome::kRefused);
  }
  const auto mark = [&](const std::vector<wire::ProcessIdentity>& which, StopOutcome outcome) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const auto same = [&](const wire::ProcessIdentity& process) { return process.pid == processes[i].pid; };
      if (std::any_of(which.begin(), which.end(), same)) outcomes[i] = outcome;
    }
  };
  std::vector<wire::ProcessIdentity> killed;
  for (const wire::ProcessIdentity& process : WaitUntilGone(std::move(signaled), grace)) {
    if (SendSignal(process, SIGKILL) == SignalOutcome::kSent) killed.push_back(process);
  }
  mark(killed, StopOutcome::kKilled);
  mark(WaitUntilGone(std::move(killed), timeout), StopOutcome::kUnkillable);
  return outcomes;
}

bool IsThisProcessOrAncestor(int pid) {
  int each = getpid();
  // Longer chains do not exist; a pid namespace ends in 0.
  for (int depth = 0; each > 0 && depth < 1024; ++depth) {
    if (each == pid) return true;
    const auto stat = wire::ReadProcessStat(each);
    each = stat ? stat->parent : 0;
  }
  return false;
}

}  // namespace fulldeck::job
