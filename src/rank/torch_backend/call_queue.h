// The collective calls of one group, one at a time and in the order in which they were made, whoever does them:
//   - the caller, at once, when it waits for the call anyway and nothing is queued before it;
//   - whoever waits for a queued call, as long as nobody else is at work (so that a wait costs no change of threads);
//   - the group's thread "fulldeck-group", started when a call is queued for the first time.
// A call that the caller does not wait for is never done in the caller: it may be legal only because it does not block
// (two groups used in another order on another rank).
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
  // What is thrown becomes the error of the work.
  using Call = std::function<void()>;

  static std::shared_ptr<CallQueue> Create() { return std::shared_ptr<CallQueue>(new CallQueue); }
  // Stop was called, or nothing was ever queued.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Any thread. Throws when stopped.
  void Submit(const c10::intrusive_ptr<CollectiveWork>& work, Call call, bool caller_waits);

  // Waits until nothing is queued or under way; false: not by the deadline. Not from a call.
  bool Drain(std::chrono::steady_clock::time_point deadline);
  // No call begins after this; the queued ones fail with the reason. Joins the thread, once the call under way is over;
  // false: not by the deadline. May be called again (after the group was aborted). A thread that never ends is let go
  // by the destructor; it holds all that it needs.
  bool Stop(const std::string& reason, std::chrono::steady_clock::time_point deadline);

 private:
  struct Item {
    c10::intrusive_ptr<CollectiveWork> work;
    Call call;
  };

  CallQueue() = default;
  void Loop();
  // Both with the lock held on entry and exit.
  void RunFront(std::unique_lock<std::mutex>& lock);
  void Run(std::unique_lock<std::mutex>& lock, Item item);
  // For CollectiveWork::SetDriver.
  void HelpUntil(CollectiveWork& work, std::chrono::milliseconds timeout);

  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;  // somebody is in a call
  bool stopped_ = false;
  std::string stop_reason_;
  std::thread thread_;
  bool thread_ended_ = false;
};

}  // namespace fulldeck::torch_backend
