#include "torch_backend/message_driver.h"

#include <algorithm>
#include <utility>

#include "torch_backend/named_thread.h"
#include "torch_backend/quiet_dispatch.h"

namespace fulldeck::torch_backend {
namespace {

using collectives::MessageOperation;
using std::chrono::steady_clock;

// A caller that is about to wait moves its message itself; the thread waits this long before it takes over.
constexpr auto kGrace = std::chrono::microseconds(500);
// Interval between checks of deadlines and of the group's health.
constexpr auto kNap = std::chrono::milliseconds(10);

}  // namespace

MessageDriver::MessageDriver(std::shared_ptr<collectives::Group> group, std::shared_ptr<const Failures> failures)
    : group_(std::move(group)), failures_(std::move(failures)) {}

std::shared_ptr<MessageDriver> MessageDriver::Create(std::shared_ptr<collectives::Group> group,
                                                     std::shared_ptr<const Failures> failures) {
  return std::shared_ptr<MessageDriver>(new MessageDriver(std::move(group), std::move(failures)));
}

MessageDriver::~MessageDriver() {
  // The thread holds a reference to the driver, so the last reference was its own: this is that thread, about to end.
  if (thread_.joinable()) thread_.detach();
}

void MessageDriver::Send(const c10::intrusive_ptr<CollectiveWork>& work, std::shared_ptr<Operands> operands,
                         const OperandRange& message, int to, std::uint64_t tag, std::chrono::milliseconds timeout) {
  const at::Tensor host = operands->Host(message);
  auto operation = group_->messages().PostSend(host.data_ptr(), host.nbytes(), to, tag);
  Begin({work, std::move(operands), host, std::move(operation), steady_clock::now() + timeout, timeout, "send"});
}

void MessageDriver::Receive(const c10::intrusive_ptr<CollectiveWork>& work, std::shared_ptr<Operands> operands,
                            const OperandRange& message, int from, std::uint64_t tag,
                            std::chrono::milliseconds timeout) {
  const at::Tensor host = operands->Host(message);
  auto operation = group_->messages().PostReceive(host.data_ptr(), host.nbytes(), from, tag);
  Begin({work, std::move(operands), host, std::move(operation), steady_clock::now() + timeout, timeout, "receive"});
}

void MessageDriver::Begin(Item item) {
  if (item.operation->done()) return End(item);
  const std::lock_guard lock(mutex_);
  if (stopped_) failures_->Throw(item.call, stop_reason_);
  item.work->SetDriver([driver = weak_from_this(), operation = item.operation,
                        deadline = item.deadline](std::chrono::milliseconds timeout) {
    if (const auto alive = driver.lock()) alive->DriveUntilDone(operation, deadline, timeout);
  });
  items_.push_back(std::move(item));
  if (!thread_.joinable()) {
    thread_ = StartNamedThread("fulldeck-msgs", [self = shared_from_this()] { self->Loop(); });
  }
  changed_.notify_all();
}

void MessageDriver::End(Item& item) {
  std::exception_ptr error;
  try {
    const QuietDispatch quiet;
    failures_->ThrowIf(item.operation->status(), item.call, item.timeout);
    item.operands->Deliver();
    item.work->SetSourceRank(item.operation->peer());
  } catch (...) {
    error = std::current_exception();
  }
  item.work->Finish(std::move(error));
}

void MessageDriver::Sweep() {
  std::list<Item> done;
  {
    const std::lock_guard lock(mutex_);
    for (auto item = items_.begin(); item != items_.end();) {
      const auto next = std::next(item);
      if (item->operation->done()) done.splice(done.end(), items_, item);
      item = next;
    }
    if (!done.empty()) changed_.notify_all();
  }
  for (Item& item : done) End(item);
}

void MessageDriver::DriveUntilDone(const std::shared_ptr<MessageOperation>& operation,
                                   steady_clock::time_point deadline, std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    ++waiters_;
  }
  collectives::Messages& messages = group_->messages();
  if (timeout == kNoTimeout) {
    // The result is in the operation.
    (void)messages.Wait(*operation, deadline);
  } else {
    const auto give_up = steady_clock::now() + timeout;
    while (!operation->done() && steady_clock::now() < give_up) {
      if (!messages.Progress()) messages.WaitForBell(std::min<base::Duration>(kNap, give_up - steady_clock::now()));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    --waiters_;
    changed_.notify_all();
  }
  Sweep();
  // Only this wait times out; the operation continues.
  TORCH_CHECK(operation->done(), "fulldeck: Timed out waiting ", timeout.count(), "ms for a message.");
}

void MessageDriver::Loop() {
  collectives::Messages& messages = group_->messages();
  const auto needed = [this] { return !items_.empty() && waiters_ == 0; };
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [&] { return stopped_ || needed(); });
    changed_.wait_for(lock, kGrace, [&] { return stopped_ || !needed(); });
    while (!stopped_ && needed()) {
      std::shared_ptr<MessageOperation> late;
      for (const Item& item : items_) {
        if (item.deadline <= steady_clock::now()) late = item.operation;
      }
      lock.unlock();
      // On a timeout the engine writes the text about what each side waits for, and fails the group.
      if (late) (void)messages.Wait(*late, steady_clock::now());
      const bool moved = messages.Progress();
      Sweep();
      if (!moved) messages.WaitForBell(kNap);
      lock.lock();
    }
  }
}

bool MessageDriver::Drain(steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return stopped_ || items_.empty(); });
}

void MessageDriver::Stop(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (!stopped_) {
    stopped_ = true;
    stop_reason_ = reason;
  }
  std::list<Item> left = std::exchange(items_, {});
  changed_.notify_all();
  group_->messages().Wake();
  std::thread thread;
  if (thread_.get_id() != std::this_thread::get_id()) thread = std::exchange(thread_, {});
  lock.unlock();
  for (Item& item : left) {
    item.work->Finish(std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, "fulldeck: " + reason)));
    item.work.reset();
  }
  if (thread.joinable()) thread.join();
  // Threads still waiting inside leave soon: the group was aborted, or their operation is done.
  lock.lock();
  changed_.wait_for(lock, std::chrono::seconds(5), [&] { return waiters_ == 0; });
  given_up_.splice(given_up_.end(), left);
}

}  // namespace fulldeck::torch_backend
