// An additional thread that copies and reduces with the caller in long calls, if a CPU is available for it. A core can
// have only a limited number of outstanding reads of another core's cache lines, and two cores have twice as many. The
// helper never waits for other ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace fulldeck::collectives {

// Run: one thread at a time. The helper thread ("fulldeck-helper") is started by the first Run and joined by the
// destructor.
class HelperThread {
 public:
  // Without a helper, Run does everything in the caller.
  explicit HelperThread(bool has_helper) : parts_(has_helper ? 2 : 1) {}
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  int parts() const { return parts_; }
  // Runs work(0) in the caller and work(1) in the helper; returns when both are done. `work` must not throw.
  void Run(const std::function<void(int part)>& work);

 private:
  void Loop();

  const int parts_;
  std::thread thread_;
  const std::function<void(int)>* work_ = nullptr;  // published by posted_
  std::atomic<std::uint32_t> posted_{0};  // number of the last job; release by Run, acquire by the helper. Futex word.
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> finished_{
      0};  // number of the last job that the helper finished; release, pairs with the load in Run. Futex word.
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<bool> leaving_{false};
};

}  // namespace fulldeck::collectives
