#include "collectives/messages/messages.h"

#include <algorithm>
#include <mutex>

#include "base/usable_processors.h"
#include "collectives/messages/message_traffic.h"

namespace fulldeck::collectives {
namespace {

constexpr base::Duration kHealthEvery = std::chrono::milliseconds(5);
// Bounds how long the lock is held.
constexpr int kRoundsOfAMove = 16;
constexpr int kRoundsAtTheEnd = 1024;

base::TimePoint Now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

struct Messages::State {
  explicit State(Wiring given)
      : wiring(std::move(given)),
        patience(wiring.patience ? *wiring.patience : PatienceFor(wiring.size, base::UsableProcessors())),
        bell(*wiring.doorbells[static_cast<std::size_t>(wiring.rank)]),
        traffic(wiring) {}

  // The lock. What happened under it is told when it is gone.
  class Locked {
   public:
    explicit Locked(State& state) : state_(state) { state_.mutex.lock(); }
    ~Locked() {
      const MessageTraffic::Events events = state_.traffic.TakeEvents();
      state_.mutex.unlock();
      if (events.ended_some) {
        state_.news.store(true, std::memory_order_seq_cst);  // pairs with the load in WaitForBell
        // As in waiting.h: done_ and news are stored before this load, and a waiter has raised the count before it
        // looks at them, so that one of the two sees the other.
        if (state_.waiters.load(std::memory_order_seq_cst) > 0) Ring(state_.bell.rings, state_.bell.sleepers);
      }
      if (events.failure && state_.wiring.poison) state_.wiring.poison(*events.failure);
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    State& state_;
  };

  // A thread that waits, and so must hear of operations that another thread ends.
  class Waiter {
   public:
    explicit Waiter(State& state) : state_(state) { state_.waiters.fetch_add(1, std::memory_order_seq_cst); }
    ~Waiter() { state_.waiters.fetch_sub(1, std::memory_order_relaxed); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    State& state_;
  };

  bool Move();
  bool AskHealth();
  void AskHealthNowAndThen();
  void TimeOut(MessageOperation& operation, base::Duration waited);

  const Wiring wiring;
  const Patience patience;
  Doorbell& bell;  // of this rank

  std::mutex mutex;  // of `traffic`; never held while sleeping, nor in health and poison
  MessageTraffic traffic;

  std::atomic<int> waiters{0};
  std::atomic<bool> news{false};        // something for WaitForBell that the bell may not tell
  std::atomic<std::uint32_t> heard{0};  // what the bell stood at before the last Move
  std::atomic<base::Duration::rep> next_health{0};
};

bool Messages::State::Move() {
  const Locked locked(*this);
  // Pairs with Ring: what was put in or taken out before it is seen by this move.
  heard.store(bell.rings.load(std::memory_order_acquire), std::memory_order_relaxed);
  for (int round = 0; round < kRoundsOfAMove; ++round) {
    if (!traffic.Round()) return round > 0;
  }
  news.store(true, std::memory_order_seq_cst);  // there may be more
  return true;
}

// False: everything has ended.
bool Messages::State::AskHealth() {
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
  // A peer may have done its part between the last look and its end.
  for (int round = 0; round < kRoundsAtTheEnd && traffic.Round(); ++round) {
  }
  if (gone >= 0) {
    const std::vector<int> needed = traffic.WaitedFor();
    if (std::find(needed.begin(), needed.end(), gone) == needed.end()) return true;
  }
  traffic.FailAll(status, gone >= 0);
  return false;
}

void Messages::State::AskHealthNowAndThen() {
  const base::Duration::rep now = Now().time_since_epoch().count();
  base::Duration::rep next = next_health.load(std::memory_order_relaxed);
  if (now < next) return;
  if (next_health.compare_exchange_strong(next, now + kHealthEvery.count(), std::memory_order_relaxed)) AskHealth();
}

void Messages::State::TimeOut(MessageOperation& operation, base::Duration waited) {
  const Locked locked(*this);
  if (!operation.done()) traffic.FailOnTime(operation, waited);
}

Messages::Messages(Wiring wiring) : state_(std::make_unique<State>(std::move(wiring))) {}

Messages::~Messages() {
  const State::Locked locked(*state_);
  state_->traffic.FailAll(Status(FULLDECK_ERROR_ABORTED, state_->traffic.here() + " has left the group"));
}

std::shared_ptr<MessageOperation> Messages::PostSend(const void* data, std::uint64_t bytes, int to, std::uint64_t tag) {
  auto send = state_->traffic.Make(const_cast<void*>(data), bytes, to, tag, true);
  if (send->done()) return send;
  const State::Locked locked(*state_);
  state_->traffic.AddSend(send);
  return send;
}

std::shared_ptr<MessageOperation> Messages::PostReceive(void* data, std::uint64_t bytes, int from, std::uint64_t tag) {
  auto receive = state_->traffic.Make(data, bytes, from, tag, false);
  if (receive->done()) return receive;
  const State::Locked locked(*state_);
  state_->traffic.AddReceive(receive);
  return receive;
}

bool Messages::Progress() {
  const bool moved = state_->Move();
  if (pending() > 0) state_->AskHealthNowAndThen();
  return moved;
}

Status Messages::Wait(MessageOperation& operation, base::TimePoint deadline) {
  State& state = *state_;
  if (operation.done()) return operation.status();
  const base::TimePoint begin = Now();
  Doorbell& bell = state.bell;
  for (bool again = false;; again = true) {
    // Pairs with Ring: what this load has heard of, the move sees; what comes later changes the word.
    const std::uint32_t heard = bell.rings.load(std::memory_order_acquire);
    const bool moved = state.Move();
    // Others may keep the bell ringing and things moving for ever: neither may keep this thread from looking up.
    if (again && !operation.done()) {
      state.AskHealthNowAndThen();
      if (Now() >= deadline) state.TimeOut(operation, Now() - begin);
    }
    if (operation.done()) break;
    if (moved) continue;
    const State::Waiter waiter(state);
    const auto done = [&] { return operation.done() || bell.rings.load(std::memory_order_acquire) != heard; };
    const auto check = [&] { return state.AskHealth(); };
    const auto outcome = WaitUntil(bell.rings, bell.sleepers, done, state.patience, deadline, check);
    if (outcome == WaitOutcome::kTimedOut) state.TimeOut(operation, Now() - begin);
  }
  return operation.status();
}

void Messages::WaitForBell(base::Duration at_most) {
  State& state = *state_;
  const State::Waiter waiter(state);
  Doorbell& bell = state.bell;
  const std::uint32_t heard = state.heard.load(std::memory_order_relaxed);
  Patience patience = state.patience;
  if (pending() == 0) {
    patience.pauses = 0;
    patience.yield_for = base::Duration::zero();
  }
  const auto done = [&] {
    return state.news.load(std::memory_order_seq_cst) || bell.rings.load(std::memory_order_acquire) != heard;
  };
  const auto check = [&] { return pending() == 0 || state.AskHealth(); };
  const base::TimePoint deadline = Now() + std::min<base::Duration>(at_most, std::chrono::hours(1));
  // Why it ended is the caller's to see, by looking at its operations.
  static_cast<void>(WaitUntil(bell.rings, bell.sleepers, done, patience, deadline, check));
  state.news.store(false, std::memory_order_seq_cst);
}

void Messages::Wake() {
  state_->news.store(true, std::memory_order_seq_cst);
  Ring(state_->bell.rings, state_->bell.sleepers);
}

std::size_t Messages::pending() const {
  return state_->traffic.pending();
}

}  // namespace fulldeck::collectives
