#include "agent/signal_chain.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "agent/actions_lock.h"
#include "agent/crash_report.h"
#include "agent/crash_signals.h"
#include "agent/fault_guard.h"
#include "agent/guarded_memory.h"
#include "agent/stack_signal.h"

namespace fulldeck::agent {
namespace {

using Sigaction = int(int, const struct sigaction*, struct sigaction*);

constinit std::atomic<Sigaction*> next_sigaction{nullptr};
constinit std::atomic<int> chained_process{0};  // process that owns these handlers; 0: the chain was not started

// The program's actions, by signal number.
struct sigaction users_actions[32];

// Stack address of this thread's running crash handler; 0: none. initial-exec: the default TLS model may allocate on
// first use.
[[gnu::tls_model("initial-exec")]] thread_local std::uintptr_t handling_at = 0;
[[gnu::tls_model("initial-exec")]] thread_local int handling_signal = 0;

void OnCrash(int signal_number, siginfo_t* info, void* context);

// Installs in the kernel, given the program's action, our handler with the program's mask and flags, or SIG_IGN.
int Install(int signal_number, const struct sigaction& users) {
  struct sigaction ours = users;
  if (users.sa_handler != SIG_IGN) {
    ours.sa_sigaction = OnCrash;
    ours.sa_flags = (users.sa_flags & ~static_cast<int>(SA_RESETHAND)) | SA_SIGINFO | SA_ONSTACK;
    if (users.sa_handler == SIG_DFL) {
      sigemptyset(&ours.sa_mask);
      ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    }
  }
  return NextSigaction(signal_number, &ours, nullptr);
}

// The program's action for a signal that has just arrived; a one-shot action (SA_RESETHAND) is consumed.
struct sigaction TakeAction(int signal_number) {
  const ActionsLock lock;
  struct sigaction& action = users_actions[signal_number];
  const struct sigaction taken = action;
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 && action.sa_handler != SIG_IGN) {
    action.sa_handler = SIG_DFL;
  }
  return taken;
}

// Makes the kernel take the default action, with the original siginfo, as soon as the handler returns.
void EndByDefault(int signal_number, siginfo_t* info) {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  NextSigaction(signal_number, &plain, nullptr);
  const int pid = getpid();
  const long thread = syscall(SYS_gettid);
  if (syscall(SYS_rt_tgsigqueueinfo, pid, thread, signal_number, info) != 0) {
    syscall(SYS_tgkill, pid, thread, signal_number);
  }
}

// Whether the signal arrived while this thread handles another one, for example because a handler raises its signal
// again. A handler may be left by longjmp, which is not noticed here, so a mark counts only for frames just below it.
bool IsNested(std::uintptr_t here) {
  constexpr std::uintptr_t kReach = 64 * 1024;
  return handling_at != 0 && here < handling_at && handling_at - here < kReach;
}

void Call(const struct sigaction& users, int signal_number, siginfo_t* info, void* context) {
  if ((users.sa_flags & SA_SIGINFO) != 0) {
    users.sa_sigaction(signal_number, info, context);
  } else {
    users.sa_handler(signal_number);
  }
}

void OnCrash(int signal_number, siginfo_t* info, void* context) {
  if (signal_number == SIGSEGV || signal_number == SIGBUS) LeaveFault();
  const int error = errno;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const std::uintptr_t outer_at = handling_at;
  const int outer_signal = handling_signal;
  const struct sigaction users = TakeAction(signal_number);
  const bool nested = IsNested(here);
  Report report = Report::kNone;
  if (!nested) {
    handling_at = here;
    handling_signal = signal_number;
    report = WriteReport(signal_number, *info, context);
  } else if (signal_number != outer_signal) {
    AddSignalToReport("then: ", signal_number, " while the program handled it");
  }

  if (users.sa_handler == SIG_DFL) {
    EndByDefault(signal_number, info);
  } else if (users.sa_handler != SIG_IGN) {
    errno = error;
    Call(users, signal_number, info, context);
    if (report == Report::kWritten) AddToReport("then: the program's own handler returned");
  }
  handling_at = nested ? outer_at : 0;
  handling_signal = nested ? outer_signal : 0;
  errno = error;
}

void GiveAlternateStack() {
  stack_t present{};
  if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
  constexpr std::size_t kSize = 128 * 1024;
  char* const memory = GuardedMemory(kSize);
  if (memory == nullptr) return;
  stack_t ours{};
  ours.ss_sp = memory;
  ours.ss_size = kSize;
  sigaltstack(&ours, nullptr);
}

void InForkedChild() {
  ActionsLock::Free();
  ForgetReports();
  LeaveStackSignal();
  chained_process.store(getpid(), std::memory_order_relaxed);
}

}  // namespace

void StartChain() {
  GiveAlternateStack();
  pthread_atfork(nullptr, nullptr, InForkedChild);
  for (const int signal_number : kCrashSignals) {
    const ActionsLock lock;
    if (NextSigaction(signal_number, nullptr, &users_actions[signal_number]) != 0) continue;
    if (users_actions[signal_number].sa_handler != SIG_IGN) Install(signal_number, users_actions[signal_number]);
  }
  chained_process.store(getpid(), std::memory_order_relaxed);
}

int NextSigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous) {
  Sigaction* next = next_sigaction.load(std::memory_order_relaxed);
  if (next == nullptr) {
    next = reinterpret_cast<Sigaction*>(dlsym(RTLD_NEXT, "sigaction"));
    next_sigaction.store(next, std::memory_order_relaxed);
  }
  if (next != nullptr) return next(signal_number, wanted, previous);
  errno = ENOSYS;
  return -1;
}

int ChainedSigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous) {
  if (IsStackSignal(signal_number)) return StackSigaction(wanted, previous);
  if (!IsChained(signal_number)) return NextSigaction(signal_number, wanted, previous);
  struct sigaction users {};
  if (wanted != nullptr) users = *wanted;
  struct sigaction before {};
  int result = 0;
  {
    const ActionsLock lock;
    before = users_actions[signal_number];
    if (wanted != nullptr) {
      // Record first: the handler may run as soon as the kernel has the action.
      users_actions[signal_number] = users;
      result = Install(signal_number, users);
      if (result != 0) users_actions[signal_number] = before;
    }
  }
  if (result == 0 && previous != nullptr) *previous = before;
  return result;
}

bool IsChained(int signal_number) {
  return IsCrashSignal(signal_number) && chained_process.load(std::memory_order_relaxed) == getpid();
}

bool FaultsAreGuarded() {
  for (const int signal_number : {SIGSEGV, SIGBUS}) {
    struct sigaction now {};
    if (NextSigaction(signal_number, nullptr, &now) != 0 || now.sa_sigaction != OnCrash) return false;
  }
  return true;
}

}  // namespace fulldeck::agent
