// Guards the record of the program's signal handlers. Held for a few instructions, with all signals blocked, so that a
// handler never waits for its own thread. May be used in a handler.
#pragma once

#include <sched.h>
#include <signal.h>

#include <atomic>

namespace fulldeck::agent {

class ActionsLock {
 public:
  ActionsLock() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before_);
    while (held_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~ActionsLock() {
    held_.clear(std::memory_order_release);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  ActionsLock(const ActionsLock&) = delete;
  ActionsLock& operator=(const ActionsLock&) = delete;

  // In the child of a fork that happened while another thread held the lock.
  static void Free() { held_.clear(std::memory_order_release); }

 private:
  // NOLINTNEXTLINE(readability-identifier-naming): of the class, as its other members are
  static inline constinit std::atomic_flag held_ = ATOMIC_FLAG_INIT;
  sigset_t before_;
};

}  // namespace fulldeck::agent
