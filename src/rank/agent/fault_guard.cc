#include "agent/fault_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace fulldeck::agent {
namespace {

// The thread that is inside RunGuarded. Relaxed: only a comparison with the own tid matters, and a thread sees its own
// writes.
constinit std::atomic<long> guarded_thread{0};
sigjmp_buf way_out;

}  // namespace

bool RunGuarded(void (*work)(void*), void* argument) {
  // A fault whose signal is blocked kills the process immediately, and inside a handler it is blocked.
  sigset_t faults;
  sigset_t before;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  sigprocmask(SIG_UNBLOCK, &faults, &before);
  volatile bool returned = false;
  if (sigsetjmp(way_out, 0) == 0) {
    guarded_thread.store(syscall(SYS_gettid), std::memory_order_relaxed);
    work(argument);
    returned = true;
  }
  guarded_thread.store(0, std::memory_order_relaxed);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return returned;
}

void LeaveFault() {
  const long thread = guarded_thread.load(std::memory_order_relaxed);
  if (thread == 0 || thread != syscall(SYS_gettid)) return;
  guarded_thread.store(0, std::memory_order_relaxed);
  siglongjmp(way_out, 1);
}

}  // namespace fulldeck::agent
