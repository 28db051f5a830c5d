#include "agent/stack_signal.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "agent/actions_lock.h"
#include "agent/crash_signals.h"
#include "agent/preload_variable.h"
#include "agent/signal_chain.h"
#include "agent/stack_report.h"

namespace fulldeck::agent {
namespace {

constinit std::atomic<int> rank_process{0};  // 0: the signal was never installed
constinit fulldeck_board* rank_board = nullptr;
// The program's action; guarded by ActionsLock.
struct sigaction users_action;

void OnStackSignal(int, siginfo_t* info, void* context) {
  const int error = errno;
  const int pid = getpid();
  // A child of fork that has not called LeaveStackSignal yet, or of vfork, is not the rank.
  if (pid == rank_process.load(std::memory_order_relaxed)) {
    if (info->si_code == SI_TKILL && info->si_pid == pid) {
      AnswerWithStack(context);
    } else {
      WriteStacks(info->si_code == SI_QUEUE ? static_cast<std::uint32_t>(info->si_value.sival_int) : 0, context);
    }
  }
  errno = error;
}

int InstallOurs() {
  struct sigaction ours {};
  ours.sa_sigaction = OnStackSignal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  // A handler of the program could leave ours by longjmp, so its signals are blocked; faults must still be caught.
  sigfillset(&ours.sa_mask);
  for (const int signal_number : kCrashSignals) sigdelset(&ours.sa_mask, signal_number);
  return NextSigaction(StackSignal(), &ours, nullptr);
}

bool IsDefault(const struct sigaction& action) {
  return action.sa_handler == SIG_DFL;
}

// The descriptor that our hook sets while it registers Python's handler; -1: the caller is not our hook.
int DescriptorOfHook() {
  const char* const text = FindVariable(environ, kPythonStacksVariable);
  if (text == nullptr || *text < '1' || *text > '9') return -1;
  int number = 0;
  for (const char* digit = text; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9' || number > 100'000) return -1;
    number = number * 10 + (*digit - '0');
  }
  return number;
}

}  // namespace

int StackSignal() {
  return SIGRTMAX - 5;
}

void StartStackSignal(const char* path, fulldeck_board* board) {
  if (NextSigaction(StackSignal(), nullptr, &users_action) != 0 || !IsDefault(users_action) ||
      !PrepareStacks(path, StackSignal())) {
    return;
  }
  rank_board = board;
  rank_process.store(getpid(), std::memory_order_relaxed);
  if (InstallOurs() == 0) fulldeck_board_stack_signal(board, StackSignal());
}

void LeaveStackSignal() {
  const int before = rank_process.exchange(0, std::memory_order_relaxed);
  if (before == 0 || !IsDefault(users_action)) return;
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  NextSigaction(StackSignal(), &plain, nullptr);
}

bool IsStackSignal(int signal_number) {
  return signal_number == StackSignal() && rank_process.load(std::memory_order_relaxed) == getpid();
}

int StackSigaction(const struct sigaction* wanted, struct sigaction* previous) {
  struct sigaction users {};
  if (wanted != nullptr) users = *wanted;
  struct sigaction before {};
  int result = 0;
  const int descriptor = wanted != nullptr && !IsDefault(users) ? DescriptorOfHook() : -1;
  // Calls the loader only for our hook, which does not run in a signal handler.
  const auto dump =
      descriptor >= 0 ? reinterpret_cast<PythonDump>(dlsym(RTLD_DEFAULT, "_Py_DumpTracebackThreads")) : nullptr;
  {
    const ActionsLock lock;
    before = users_action;
    if (descriptor >= 0) {
      SetPythonStacks(users.sa_handler, descriptor, dump);
    } else if (wanted != nullptr) {
      const bool ours = IsDefault(users);
      // Python unregisters its handler when it exits, and an action of the program's own replaces it.
      SetPythonStacks(nullptr, -1, nullptr);
      if (!ours) fulldeck_board_stack_signal(rank_board, 0);
      result = ours ? InstallOurs() : NextSigaction(StackSignal(), &users, nullptr);
      if (result == 0) users_action = users;
      if (result == 0 && ours) fulldeck_board_stack_signal(rank_board, StackSignal());
    }
  }
  if (result == 0 && previous != nullptr) *previous = before;
  return result;
}

}  // namespace fulldeck::agent
