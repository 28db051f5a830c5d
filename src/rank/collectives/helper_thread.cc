#include "collectives/helper_thread.h"

#include <pthread.h>

#include <system_error>

#include "collectives/waiting.h"

namespace fulldeck::collectives {
namespace {

// The helper's next job arrives within one stage of the call; it has a CPU of its own to spin on.
constexpr WaitPolicy kWaitPolicy{2000, std::chrono::microseconds(100), std::chrono::milliseconds(100)};

base::TimePoint NoDeadline() {
  return base::SteadyClock::Instance().Now() + std::chrono::hours(24 * 365);
}

}  // namespace

HelperThread::~HelperThread() {
  if (!thread_.joinable()) return;
  leaving_.store(true, std::memory_order_release);  // pairs with the load in Loop
  Publish(posted_, posted_.load(std::memory_order_relaxed) + 1, sleepers_);
  thread_.join();
}

void HelperThread::Run(const std::function<void(int part)>& work) {
  if (parts_ == 1) {
    work(0);
    return;
  }
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Loop(); });
    } catch (const std::system_error&) {
      // No thread can be created: this call takes longer, and the next one tries again.
      work(0);
      work(1);
      return;
    }
  }
  work_ = &work;
  const std::uint32_t job = posted_.load(std::memory_order_relaxed) + 1;
  Publish(posted_, job, sleepers_);
  work(0);
  (void)WaitUntil(
      finished_, waiters_, [&] { return finished_.load(std::memory_order_acquire) == job; }, kWaitPolicy, NoDeadline(),
      [] { return true; });
}

void HelperThread::Loop() {
  pthread_setname_np(pthread_self(), "fulldeck-helper");
  for (std::uint32_t job = 1;; ++job) {
    (void)WaitUntil(
        posted_, sleepers_, [&] { return posted_.load(std::memory_order_acquire) == job; }, kWaitPolicy, NoDeadline(),
        [] { return true; });
    if (leaving_.load(std::memory_order_acquire)) return;
    (*work_)(1);
    Publish(finished_, job, waiters_);
  }
}

}  // namespace fulldeck::collectives
