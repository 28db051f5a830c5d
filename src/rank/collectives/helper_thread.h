// One more thread that shares in the copying and reducing of long calls, where there is a processor for it: a core can
// have only so many lines of another core's cache under way, and two cores have twice as many. It never waits for other
// ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace fulldeck::collectives {

// Run: one thread at a time. The helper ("fulldeck-helper") is started by the first Run and joined at the end.
class HelperThread {
 public:
  // `has_helper` false: Run does everything in the caller.
  explicit HelperThread(bool has_helper) : parts_(has_helper ? 2 : 1) {}
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  int parts() const { return parts_; }
  // work(0) in the caller and work(1) in the helper; back when both are done. `work` must not throw.
  void Run(const std::function<void(int part)>& work);

 private:
  void Loop();

  const int parts_;
  std::thread thread_;
  const std::function<void(int)>* work_ = nullptr;  // handed over by posted_
  std::atomic<std::uint32_t> posted_{0};  // number of the last job; release by Run, acquire by the helper. Futex word.
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> finished_{
      0};  // number of the last job that the helper did; release, pairs with Run. Futex word.
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<bool> leaving_{false};
};

}  // namespace fulldeck::collectives
