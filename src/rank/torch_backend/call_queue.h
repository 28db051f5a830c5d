// The collective calls of one group, run one at a time and in the order in which they were submitted. A call is run by
// one of these threads:
//   - the caller, immediately, if it waits for the call anyway and nothing is queued before it;
//   - a thread that waits for a queued call, if no call is running (so that a wait costs no context switch);
//   - the group's thread "fulldeck-group", started when a call is queued for the first time.
// A call that the caller does not wait for never runs in the caller: the program may rely on it not to block (for
// example, two groups used in a different order on another rank). The queue does not communicate; the calls do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "torch_backend/work.h"

namespace fulldeck::torch_backend {

class CallQueue : public std::enable_shared_from_this<CallQueue> {
 public:
  // An exception becomes the error of the work.
  using Call = std::function<void()>;

  static std::shared_ptr<CallQueue> Create() { return std::shared_ptr<CallQueue>(new CallQueue); }
  // Precondition: Stop was called, or no call was ever queued.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Any thread. Throws after Stop.
  void Submit(const c10::intrusive_ptr<CollectiveWork>& work, Call call, bool caller_waits);

  // Waits until no call is queued or running. Returns false if the deadline passes first. Do not call it from a call.
  bool Drain(std::chrono::steady_clock::time_point deadline);
  // No call begins after this; queued ones fail with the reason. Joins the thread once the running call has ended.
  // Returns false if the deadline passes first. May be called again (after the group was aborted). A thread that never
  // ends is detached by the destructor; it holds everything that it needs.
  bool Stop(const std::string& reason, std::chrono::steady_clock::time_point deadline);

 private:
  struct Item {
    c10::intrusive_ptr<CollectiveWork> work;
    Call call;
  };

  CallQueue() = default;
  void Loop();
  // Both are entered and left with the lock held.
  void RunFront(std::unique_lock<std::mutex>& lock);
  void Run(std::unique_lock<std::mutex>& lock, Item item);
  // For CollectiveWork::SetDriver.
  void HelpUntil(CollectiveWork& work, std::chrono::milliseconds timeout);

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;  // a call is running
  bool stopped_ = false;
  std::string stop_reason_;
  std::thread thread_;
  bool thread_ended_ = false;
};

}  // namespace fulldeck::torch_backend
