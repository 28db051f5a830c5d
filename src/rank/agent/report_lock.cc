#include "agent/report_lock.h"

#include <time.h>

#include <atomic>

namespace fulldeck::agent {
namespace {

// The tid of the holder; 0: free. Acquire and release: a report sees everything that the previous one wrote.
constinit std::atomic<long> writer{0};

}  // namespace

bool AcquireReportLock(long thread, int milliseconds) {
  for (;; --milliseconds) {
    long expected = 0;
    if (writer.compare_exchange_strong(expected, thread, std::memory_order_acquire)) return true;
    if (expected == thread || milliseconds <= 0) return false;
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

void ReleaseReportLock() {
  writer.store(0, std::memory_order_release);
}

void ResetReportLock() {
  writer.store(0, std::memory_order_relaxed);
}

}  // namespace fulldeck::agent
