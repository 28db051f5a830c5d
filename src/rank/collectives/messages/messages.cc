#include "collectives/messages/messages.h"

#include <algorithm>
#include <mutex>

#include "base/usable_cpus.h"
#include "collectives/messages/message_traffic.h"

namespace fulldeck::collectives {
namespace {

constexpr base::Duration kHealthInterval = std::chrono::milliseconds(5);
// Bounds how long the lock is held.
constexpr int kRoundsPerMove = 16;
constexpr int kRoundsAtTheEnd = 1024;

base::TimePoint Now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

struct Messages::Impl {
  explicit Impl(Wiring given)
      : wiring(std::move(given)),
        wait_policy(wiring.wait_policy ? *wiring.wait_policy : WaitPolicyFor(wiring.size, base::UsableCpus())),
        bell(*wiring.doorbells[static_cast<std::size_t>(wiring.rank)]),
        traffic(wiring) {}

  // Holds the lock; notifies others of what happened under it after releasing it.
  class Locked {
   public:
    explicit Locked(Impl& impl) : impl_(impl) { impl_.mutex.lock(); }
    ~Locked() {
      const MessageTraffic::Events events = impl_.traffic.TakeEvents();
      impl_.mutex.unlock();
      if (events.ended_some) {
        impl_.wakeup_pending.store(true, std::memory_order_seq_cst);  // pairs with the load in WaitForBell
        // As in waiting.h: done_ and wakeup_pending are stored before this load, and a waiter has incremented the count
        // before it loads them, so that one of the two sees the other.
        if (impl_.waiters.load(std::memory_order_seq_cst) > 0) Ring(impl_.bell.rings, impl_.bell.sleepers);
      }
      if (events.failure && impl_.wiring.poison) impl_.wiring.poison(*events.failure);
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    Impl& impl_;
  };

  // Registers a thread that waits, so that it is woken when another thread ends its operation.
  class Waiter {
   public:
    explicit Waiter(Impl& impl) : impl_(impl) { impl_.waiters.fetch_add(1, std::memory_order_seq_cst); }
    ~Waiter() { impl_.waiters.fetch_sub(1, std::memory_order_relaxed); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    Impl& impl_;
  };

  bool Move();
  bool CheckHealth();
  void CheckHealthPeriodically();
  void TimeOut(MessageOperation& operation, base::Duration waited);

  const Wiring wiring;
  const WaitPolicy wait_policy;
  Doorbell& bell;  // of this rank

  std::mutex mutex;  // of `traffic`; never held while sleeping, nor during health and poison
  MessageTraffic traffic;

  std::atomic<int> waiters{0};
  std::atomic<bool> wakeup_pending{false};  // WaitForBell has something to do that the bell may not show
  std::atomic<std::uint32_t> seen{0};       // value of the bell before the last Move
  std::atomic<base::Duration::rep> next_health{0};
};

bool Messages::Impl::Move() {
  const Locked locked(*this);
  // Pairs with Ring: everything that was written or read before this value of the bell is visible to this move.
  seen.store(bell.rings.load(std::memory_order_acquire), std::memory_order_relaxed);
  for (int round = 0; round < kRoundsPerMove; ++round) {
    if (!traffic.Round()) return round > 0;
  }
  wakeup_pending.store(true, std::memory_order_seq_cst);  // there may be more
  return true;
}

// False: everything has ended.
bool Messages::Impl::CheckHealth() {
  if (!wiring.health) return true;
  int gone = -1;
  Status status = wiring.health(-1);
  if (status.ok()) {
    std::vector<int> needed;
    {
      const Locked locked(*this);
      needed = traffic.WaitedFor();
    }
    for (const int peer : needed) {
      status = wiring.health(peer);
      gone = peer;
      if (!status.ok()) break;
    }
    if (status.ok()) return true;
  }
  const Locked locked(*this);
  // A peer may have done its part between the last check and its exit.
  for (int round = 0; round < kRoundsAtTheEnd && traffic.Round(); ++round) {
  }
  if (gone >= 0) {
    const std::vector<int> needed = traffic.WaitedFor();
    if (std::find(needed.begin(), needed.end(), gone) == needed.end()) return true;
  }
  traffic.FailAll(status, gone >= 0);
  return false;
}

void Messages::Impl::CheckHealthPeriodically() {
  const base::Duration::rep now = Now().time_since_epoch().count();
  base::Duration::rep next = next_health.load(std::memory_order_relaxed);
  if (now < next) return;
  if (next_health.compare_exchange_strong(next, now + kHealthInterval.count(), std::memory_order_relaxed))
    CheckHealth();
}

void Messages::Impl::TimeOut(MessageOperation& operation, base::Duration waited) {
  const Locked locked(*this);
  if (!operation.done()) traffic.FailOnTime(operation, waited);
}

Messages::Messages(Wiring wiring) : impl_(std::make_unique<Impl>(std::move(wiring))) {}

Messages::~Messages() {
  const Impl::Locked locked(*impl_);
  impl_->traffic.FailAll(Status(FULLDECK_ERROR_ABORTED, impl_->traffic.here() + " has left the group"));
}

std::shared_ptr<MessageOperation> Messages::PostSend(const void* data, std::uint64_t bytes, int to, std::uint64_t tag) {
  auto send = impl_->traffic.Make(const_cast<void*>(data), bytes, to, tag, true);
  if (send->done()) return send;
  const Impl::Locked locked(*impl_);
  impl_->traffic.AddSend(send);
  return send;
}

std::shared_ptr<MessageOperation> Messages::PostReceive(void* data, std::uint64_t bytes, int from, std::uint64_t tag) {
  auto receive = impl_->traffic.Make(data, bytes, from, tag, false);
  if (receive->done()) return receive;
  const Impl::Locked locked(*impl_);
  impl_->traffic.AddReceive(receive);
  return receive;
}

bool Messages::Progress() {
  const bool moved = impl_->Move();
  if (pending() > 0) impl_->CheckHealthPeriodically();
  return moved;
}

Status Messages::Wait(MessageOperation& operation, base::TimePoint deadline) {
  Impl& impl = *impl_;
  if (operation.done()) return operation.status();
  const base::TimePoint begin = Now();
  Doorbell& bell = impl.bell;
  for (bool again = false;; again = true) {
    // Pairs with Ring: this move sees everything up to the value loaded here; anything later changes the word.
    const std::uint32_t seen = bell.rings.load(std::memory_order_acquire);
    const bool moved = impl.Move();
    // Peers may keep ringing and moving data forever: that must not keep this thread from checking their health and its
    // deadline.
    if (again && !operation.done()) {
      impl.CheckHealthPeriodically();
      if (Now() >= deadline) impl.TimeOut(operation, Now() - begin);
    }
    if (operation.done()) break;
    if (moved) continue;
    const Impl::Waiter waiter(impl);
    const auto done = [&] { return operation.done() || bell.rings.load(std::memory_order_acquire) != seen; };
    const auto check = [&] { return impl.CheckHealth(); };
    const auto outcome = WaitUntil(bell.rings, bell.sleepers, done, impl.wait_policy, deadline, check);
    if (outcome == WaitOutcome::kTimedOut) impl.TimeOut(operation, Now() - begin);
  }
  return operation.status();
}

void Messages::WaitForBell(base::Duration at_most) {
  Impl& impl = *impl_;
  const Impl::Waiter waiter(impl);
  Doorbell& bell = impl.bell;
  const std::uint32_t seen = impl.seen.load(std::memory_order_relaxed);
  WaitPolicy wait_policy = impl.wait_policy;
  if (pending() == 0) {
    wait_policy.pauses = 0;
    wait_policy.yield_for = base::Duration::zero();
  }
  const auto done = [&] {
    return impl.wakeup_pending.load(std::memory_order_seq_cst) || bell.rings.load(std::memory_order_acquire) != seen;
  };
  const auto check = [&] { return pending() == 0 || impl.CheckHealth(); };
  const base::TimePoint deadline = Now() + std::min<base::Duration>(at_most, std::chrono::hours(1));
  // The outcome does not matter here: the caller checks its operations.
  static_cast<void>(WaitUntil(bell.rings, bell.sleepers, done, wait_policy, deadline, check));
  impl.wakeup_pending.store(false, std::memory_order_seq_cst);
}

void Messages::Wake() {
  impl_->wakeup_pending.store(true, std::memory_order_seq_cst);
  Ring(impl_->bell.rings, impl_->bell.sleepers);
}

std::size_t Messages::pending() const {
  return impl_->traffic.pending();
}

}  // namespace fulldeck::collectives
