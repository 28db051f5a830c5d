#include "collectives/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace fulldeck::collectives {
namespace {

constexpr int kPauses = 200;
constexpr base::Duration kLongYield = std::chrono::milliseconds(3);

// Not FUTEX_PRIVATE_FLAG: the word may be in memory that several processes share.
long Futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* at_most) {
  return syscall(SYS_futex, &word, operation, value, at_most, nullptr, 0);
}

}  // namespace

WaitPolicy WaitPolicyFor(int local_ranks, int usable_cpus) {
  WaitPolicy wait_policy;
  if (local_ranks <= usable_cpus) {
    wait_policy.pauses = kPauses;
  } else {
    wait_policy.yield_for = kLongYield;
  }
  return wait_policy;
}

// Step 5 of the argument in waiting.h: the kernel compares the word with `seen` and goes to sleep atomically with
// respect to FUTEX_WAKE, so a change after step 4 either prevents the sleep or ends it. Any return is allowed, because
// WaitUntil calls done() again after it.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t seen, base::Duration at_most) {
  if (at_most <= base::Duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_nsec = static_cast<long>((at_most - seconds).count());
  Futex(word, FUTEX_WAIT, seen, &time);
}

// Wakes all: sleepers of one word may wait for different conditions.
void WakeSleepers(const std::atomic<std::uint32_t>& word) {
  Futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace fulldeck::collectives
