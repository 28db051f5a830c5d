#include "torch_backend/call_queue.h"

#include <utility>
#include <vector>

#include "torch_backend/named_thread.h"
#include "torch_backend/quiet_dispatch.h"

namespace fulldeck::torch_backend {

// Invariants, all under mutex_:
//   - A thread runs a call only after it has set busy_, and only if busy_ was false and the call was the oldest one. So
//     calls run one at a time and in the order of Submit, whichever threads run them.
//   - If items_ is not empty, thread_ exists or stopped_ is set. A thread that helps may therefore stop helping at any
//     time: the group's thread runs the rest.
//   - Every change that can end a wait (a new item, busy_ cleared, stopped_, thread_ended_) notifies changed_.
// Every submitted Work is finished exactly once: by the thread that removed its item, in Run or in Stop.

namespace {

std::exception_ptr Stopped(const std::string& reason) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, reason));
}

}  // namespace

CallQueue::~CallQueue() {
  // The thread holds a reference to the queue, so the last reference was its own: this is that thread, about to end.
  if (thread_.joinable()) thread_.detach();
}

void CallQueue::Submit(const c10::intrusive_ptr<CollectiveWork>& work, Call call, bool caller_waits) {
  std::unique_lock lock(mutex_);
  if (stopped_) std::rethrow_exception(Stopped(stop_reason_));
  if (caller_waits && items_.empty() && !busy_) {
    Run(lock, {work, std::move(call)});
    return;
  }
  // A weak reference, because the queue holds the work.
  work->SetDriver([queue = weak_from_this(), raw = work.get()](std::chrono::milliseconds timeout) {
    if (const auto alive = queue.lock()) alive->HelpUntil(*raw, timeout);
  });
  items_.push_back({work, std::move(call)});
  if (!thread_.joinable()) {
    thread_ = StartNamedThread("fulldeck-group", [self = shared_from_this()] { self->Loop(); });
  }
  changed_.notify_all();
}

void CallQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || (!items_.empty() && !busy_); });
    if (stopped_) break;
    RunFront(lock);
  }
  thread_ended_ = true;
  changed_.notify_all();
}

void CallQueue::RunFront(std::unique_lock<std::mutex>& lock) {
  Item item = std::move(items_.front());
  items_.pop_front();
  Run(lock, std::move(item));
}

void CallQueue::Run(std::unique_lock<std::mutex>& lock, Item item) {
  busy_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    const QuietDispatch quiet;
    item.call();
    item.call = nullptr;
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  busy_ = false;
  changed_.notify_all();
  lock.unlock();
  // Finish runs callbacks, which may submit calls and wait for them. So neither mutex_ nor busy_ may be held here.
  item.work->Finish(std::move(error));
  item.work.reset();
  lock.lock();
}

void CallQueue::HelpUntil(CollectiveWork& work, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool own_thread = thread_.get_id() == std::this_thread::get_id();
  // A running call cannot be abandoned at the timeout, so a bounded wait never runs one. Exception: the group's own
  // thread in a callback must run calls, because no other thread is certain to.
  if (timeout != kNoTimeout && !own_thread) return;
  while (!stopped_ && !work.WaitIsOver()) {
    if (busy_) {
      if (!own_thread) return;
      changed_.wait(lock, [&] { return stopped_ || !busy_; });
    } else if (items_.empty()) {
      return;
    } else {
      RunFront(lock);
    }
  }
}

bool CallQueue::Drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return stopped_ || (items_.empty() && !busy_); });
}

bool CallQueue::Stop(const std::string& reason, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!stopped_) {
    stopped_ = true;
    stop_reason_ = reason;
  }
  std::deque<Item> left = std::exchange(items_, {});
  changed_.notify_all();
  lock.unlock();
  for (Item& item : left) item.work->Finish(Stopped(reason));
  left.clear();
  lock.lock();

  const bool own_thread = thread_.get_id() == std::this_thread::get_id();
  const bool ended = changed_.wait_until(
      lock, deadline, [&] { return !busy_ && (own_thread || !thread_.joinable() || thread_ended_); });
  if (!ended || own_thread || !thread_.joinable()) return ended;
  std::thread thread = std::exchange(thread_, {});
  lock.unlock();
  thread.join();
  return true;
}

}  // namespace fulldeck::torch_backend
