// How a rank waits for a word in shared memory that another rank changes: a short spin, then giving the processor away,
// then sleeping in the kernel. Fast with fewer ranks than processors and with more.
//
// A waiting place is two words. `word` is what changes, and what the kernel watches. `sleepers` counts those who sleep
// there or are about to, so that nobody calls the kernel to wake where nobody sleeps. Both may lie in memory of several
// processes.
//
// Why no wake is lost. The waker (1) changes the word and (2) reads sleepers; the sleeper (3) raises sleepers, (4)
// reads the word, asks done(), and only then (5) sleeps, on condition that the word is still what it read. 1 to 4 are
// sequentially consistent, so there is one order of them that all see. If 2 comes after 3, the waker sees a sleeper and
// calls the kernel, and 5 either finds a changed word and does not sleep, or is woken. If 2 comes before 3, then 1
// comes before 4, and the sleeper reads the new word; with it (an acquire of what 1 released) everything that was
// written before the change, so that done() is true. There is no third case, on any processor. Nothing here is a fence
// of its own, so the thread sanitizer can follow. That 1 is sequentially consistent is the waker's part: it uses
// Publish or Ring, or stores so itself.
//
// A sleeper that was killed leaves sleepers raised for good, and whoever changes the word from then on calls the kernel
// in vain: slower by a system call, never wrong. A wake that never comes, since the waker died between 1 and 2, costs a
// slice.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace fulldeck::collectives {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

// How long each way of waiting goes on before the next, dearer one.
struct WaitPolicy {
  int pauses = 0;                                            // looks with a pause instruction between them
  base::Duration yield_for = std::chrono::microseconds(60);  // looks with sched_yield between them
  // A yield that takes longer has given the CPU to a thread that computes: a data loader, another job. Each further
  // yield would cost another of its time slices, so the rank sleeps until it is woken.
  base::Duration longest_yield = std::chrono::microseconds(700);
  base::Duration sleep_slice = std::chrono::milliseconds(10);  // at most, of each sleep in the kernel
};

// Of a rank that waits for ranks on the same processors. With more ranks than processors a spin only keeps away the one
// that is waited for, and giving the processor away goes on for longer: who sleeps has to be woken, and then comes
// behind everybody who did not.
WaitPolicy WaitPolicyFor(int local_ranks, int usable_cpus);

enum class WaitOutcome : std::uint8_t { kDone, kInterrupted, kTimedOut };

// Tells the processor that this is a spin.
inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // "yield" does nothing on most ARM cores; this takes about as long as a pause on x86.
  asm volatile("isb" ::: "memory");
#endif
}

// Sleeps while the word is `seen`, until it is woken, a signal comes or the time is over: any of them, or for no
// reason.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t seen, base::Duration at_most);
void WakeSleepers(const std::atomic<std::uint32_t>& word);

// After a change of the word that was sequentially consistent: wakes whoever sleeps on it.
inline void WakeAll(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) {
  // Pairs with the raise in WaitUntil: see the top.
  if (sleepers.load(std::memory_order_seq_cst) != 0) WakeSleepers(word);
}

// The two ways to change a word: as its only writer, or as one of several that count it up.
inline void Publish(std::atomic<std::uint32_t>& word, std::uint32_t value, std::atomic<std::uint32_t>& sleepers) {
  word.store(value, std::memory_order_seq_cst);  // pairs with the loads of done() and of WaitUntil
  WakeAll(word, sleepers);
}
inline void Ring(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) {
  word.fetch_add(1, std::memory_order_seq_cst);  // pairs with the loads of done() and of WaitUntil
  WakeAll(word, sleepers);
}

// Waits until done(), which loads the word (acquire), or what was written before the word was changed. It is asked
// often and must be cheap. check() is never asked in the fast phases: about once in a sleep_slice, and once more at the
// deadline; false from it ends the wait with kInterrupted. Where several come together done() counts first, then
// check(), then the deadline. Any number of threads may wait on one word.
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
      sleepers.fetch_sub(1, std::memory_order_relaxed);  // orders nothing: whoever reads it too high wakes in vain
    }
    if (done()) return WaitOutcome::kDone;
    time = now();
    if (time >= next_check || time >= deadline) {
      // Asked again: the last member may have come, and another gone on and failed, since done() was asked above. What
      // is complete stays so, and the next call reports the failure.
      if (!check()) return done() ? WaitOutcome::kDone : WaitOutcome::kInterrupted;
      if (time >= deadline) return WaitOutcome::kTimedOut;
      time = now();
      next_check = time + wait_policy.sleep_slice;
    }
  }
}

}  // namespace fulldeck::collectives
