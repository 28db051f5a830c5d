// How a rank waits for a word in shared memory that another rank changes: first a short spin, then yielding the CPU,
// then sleeping in the kernel. Fast with fewer ranks than CPUs and with more.
//
// A waiting place consists of two words. `word` is what changes, and the futex word. `sleepers` counts the threads that
// sleep on it or are about to, so that wakers skip the system call if there are none. Both may be in memory that
// several processes share.
//
// Why no wake is lost: the waker (1) changes the word and (2) reads sleepers; the sleeper (3) increments sleepers, (4)
// reads the word, calls done(), and only then (5) sleeps if the word is still what it read. Steps 1 to 4 are
// sequentially consistent, so all threads agree on one order. If 2 comes after 3, the waker sees a sleeper and makes
// the system call, and 5 either finds a changed word and does not sleep, or is woken. If 2 comes before 3, then 1 comes
// before 4, and the sleeper reads the new word; with it (an acquire of what 1 released) it sees everything that was
// written before the change, so that done() is true. There is no third case, on any CPU. No standalone fences are used,
// so the thread sanitizer can follow. The waker must make step 1 sequentially consistent: it uses Publish or Ring, or
// such a store of its own.
//
// A sleeper that was killed leaves sleepers too high forever, and every later change of the word makes a needless
// system call: slower, never wrong. If the waker dies between 1 and 2, the missing wake costs one sleep slice.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace fulldeck::collectives {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

// How long each way of waiting is used before the next, more expensive one.
struct WaitPolicy {
  int pauses = 0;                                            // spins with a pause instruction
  base::Duration yield_for = std::chrono::microseconds(60);  // polls with sched_yield
  // A yield that takes longer has given the CPU to a thread that computes: a data loader, another job. Every further
  // yield would cost another of its time slices, so the rank sleeps until it is woken.
  base::Duration longest_yield = std::chrono::microseconds(700);
  base::Duration sleep_slice = std::chrono::milliseconds(10);  // upper limit of each sleep in the kernel
};

// The policy of a rank that waits for ranks on the same CPUs. With more ranks than CPUs, a spin only delays the rank
// that is waited for, so there is none, and yielding lasts longer: a sleeper has to be woken, and is then scheduled
// after all threads that did not sleep.
WaitPolicy WaitPolicyFor(int local_ranks, int usable_cpus);

enum class WaitOutcome : std::uint8_t { kDone, kInterrupted, kTimedOut };

// Hints to the CPU that this is a spin loop.
inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // "yield" is a no-op on most ARM cores; isb takes about as long as a pause on x86.
  asm volatile("isb" ::: "memory");
#endif
}

// Sleeps while the word is `seen`, until a wake, a signal or the timeout; may also return spuriously.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t seen, base::Duration at_most);
void WakeSleepers(const std::atomic<std::uint32_t>& word);

// Call after a sequentially consistent change of the word: wakes all threads that sleep on it.
inline void WakeAll(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) {
  // Pairs with the increment in WaitUntil: see the top.
  if (sleepers.load(std::memory_order_seq_cst) != 0) WakeSleepers(word);
}

// The two ways to change a word: as its only writer, or as one of several that increment it.
inline void Publish(std::atomic<std::uint32_t>& word, std::uint32_t value, std::atomic<std::uint32_t>& sleepers) {
  word.store(value, std::memory_order_seq_cst);  // pairs with the loads of done() and of WaitUntil
  WakeAll(word, sleepers);
}
inline void Ring(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) {
  word.fetch_add(1, std::memory_order_seq_cst);  // pairs with the loads of done() and of WaitUntil
  WakeAll(word, sleepers);
}

// Waits until done(), which loads the word (acquire), or data that was written before the word changed. It is called
// often and must be cheap. check() is not called in the fast phases, but about once per sleep_slice, and once more at
// the deadline; if it returns false, the wait ends with kInterrupted. If several conditions hold, done() takes
// precedence, then check(), then the deadline. Any number of threads may wait on one word.
template <class Done, class Check>
WaitOutcome WaitUntil(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers, Done done,
                      const WaitPolicy& wait_policy, base::TimePoint deadline, Check check) {
  const auto now = [] { return base::TimePoint(std::chrono::steady_clock::now()); };

  if (done()) return WaitOutcome::kDone;
  for (int i = 0; i < wait_policy.pauses; ++i) {
    Pause();
    if (done()) return WaitOutcome::kDone;
  }
  base::TimePoint time = now();
  const base::TimePoint yield_end = std::min(time + wait_policy.yield_for, deadline);
  while (time < yield_end) {
    const base::TimePoint before = time;
    sched_yield();
    if (done()) return WaitOutcome::kDone;
    time = now();
    if (time - before > wait_policy.longest_yield) break;
  }
  base::TimePoint next_check = time + wait_policy.sleep_slice;
  while (true) {
    if (time < deadline) {
      sleepers.fetch_add(1, std::memory_order_seq_cst);                 // pairs with the load in WakeAll
      const std::uint32_t seen = word.load(std::memory_order_seq_cst);  // pairs with Publish and Ring
      if (!done()) SleepWhile(word, seen, std::min(next_check, deadline) - time);
      sleepers.fetch_sub(1, std::memory_order_relaxed);  // orders nothing: a stale, higher count costs a needless wake
    }
    if (done()) return WaitOutcome::kDone;
    time = now();
    if (time >= next_check || time >= deadline) {
      // Check done() again: since the last call of done(), the last member may have arrived, and another may have
      // continued and failed. A completed wait stays completed, and the next call reports the failure.
      if (!check()) return done() ? WaitOutcome::kDone : WaitOutcome::kInterrupted;
      if (time >= deadline) return WaitOutcome::kTimedOut;
      time = now();
      next_check = time + wait_policy.sleep_slice;
    }
  }
}

}  // namespace fulldeck::collectives
