#include "simulator/card.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/text.h"
#include "wire/simulated_spec.h"
#include "wire/simulated_state.h"
#include "wire/variables.h"

namespace fulldeck::simulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

struct OpenCard {
  // Opening stores it with release; HandleOf loads it with acquire.
  std::atomic<fulldeck_simulated_card*> handle{nullptr};
  std::atomic<std::int64_t> slow_debt_ns{0};  // time that operations of a slow card still have to wait; relaxed: a
                                              // plain sum
};

struct Server {
  wire::SimulatedSpec spec;
  std::string state_path;
  std::string kind;
  std::vector<int> visible;  // the server's index of each card that this process may use
  std::array<OpenCard, wire::kMaxSimulatedCards> cards;
  std::mutex opening;
  std::atomic<std::uint32_t> fork_generation{0};
};

Server* g_server = nullptr;  // set once, before any use; never destroyed, because tensors may outlive main()

thread_local c10::DeviceIndex t_current = 0;

void AfterForkInChild() {
  // The slots belong to the parent, so this process must not count in them; the parent's mapping is leaked. Another
  // thread of the parent may have held the mutex.
  for (OpenCard& card : g_server->cards) card.handle.store(nullptr, std::memory_order_relaxed);
  new (&g_server->opening) std::mutex;
  g_server->fork_generation.fetch_add(1, std::memory_order_relaxed);
}

std::string Describe(const std::string& what) {
  return base::Printable(std::string_view(what).substr(0, 400));
}

bool HasFaults(std::uint32_t faults) {
  return (faults & ~static_cast<std::uint32_t>(FULLDECK_SIMULATED_IDLE)) != 0;
}

// A hung card blocks its caller until the fault is cleared, the card drops, or the process is killed. Within an
// operation that time counts as busy. Throws when the card is lost or broken. Returns the faults at the end of the
// wait.
std::uint32_t ApplyFaults(int card, const fulldeck_simulated_card* handle, std::uint32_t faults) {
  while ((faults & FULLDECK_SIMULATED_HUNG) != 0 && (faults & FULLDECK_SIMULATED_DROPPED) == 0) {
    std::this_thread::sleep_for(milliseconds(5));
    faults = fulldeck_simulated_card_faults(handle);
  }
  if ((faults & FULLDECK_SIMULATED_DROPPED) != 0) ThrowLost(card);
  TORCH_CHECK((faults & FULLDECK_SIMULATED_BROKEN) == 0, CardName(card),
              ": the simulated card is broken and refuses to compute.");
  return faults;
}

}  // namespace

int ReadServer(std::string& why) {
  if (g_server != nullptr) return 0;
  const base::Environment environment = base::Environment::OfThisProcess();
  const auto text = environment.Get(wire::kSimulateVariable);
  if (!text || text->empty()) {
    why = std::string(wire::kSimulateVariable) +
          " is not set, so that there are no simulated cards. Set it, for example to gcu:8.";
    return ENODEV;
  }
  auto spec = wire::ParseSimulatedSpec(*text);
  if (!spec) {
    why = Describe(spec.error().message);
    return EINVAL;
  }
  if (!spec->kind->trainable) {
    why = std::string("torch has a device \"") + spec->kind->name +
          "\" of its own and takes no other of that name: simulated " + spec->kind->name +
          " cards are there for inventory, placement and telemetry only. To train, simulate gcu, xla, npu, mlu, "
          "musa, sdaa or hpu.";
    return ENODEV;
  }
  auto visible = wire::VisibleSimulatedCards(*spec, environment);
  if (!visible) {
    why = Describe(visible.error().message);
    return EINVAL;
  }
  fulldeck_simulated_card_count();  // makes the cards' library read the list now too, not after the program has changed
                                    // it
  auto* server = new Server;
  server->visible = std::move(*visible);
  server->kind = spec->kind->name;
  server->state_path = wire::SimulatedServer::PathFor(*spec, environment);
  server->spec = std::move(*spec);
  g_server = server;
  pthread_atfork(nullptr, nullptr, &AfterForkInChild);
  return 0;
}

int CardCount() {
  return g_server == nullptr ? 0 : static_cast<int>(g_server->visible.size());
}

const std::string& KindName() {
  return g_server->kind;
}

std::string CardName(int card) {
  return KindName() + ":" + std::to_string(card);
}

std::uint64_t BytesOfCard() {
  return g_server->spec.memory_bytes;
}

std::uint64_t BytesHeld(int card) {
  const auto server = wire::SimulatedServer::OpenToWatch(g_server->state_path);
  if (!server || *server == nullptr) return 0;
  return (*server)
      ->Use(g_server->visible[static_cast<std::size_t>(card)], base::SteadyClock::Instance().Now())
      .bytes_held;
}

void CheckCard(c10::DeviceIndex card) {
  TORCH_CHECK_INDEX(card >= 0 && card < CardCount(), "There is no device ", KindName(), ":", static_cast<int>(card),
                    ": this process has ", CardCount(), " simulated cards.");
}

c10::DeviceIndex CurrentCard() {
  return t_current;
}

void SetCurrentCard(c10::DeviceIndex card) {
  CheckCard(card);
  t_current = card;
}

int CardOf(c10::Device device) {
  if (!device.has_index()) return t_current;
  CheckCard(device.index());
  return device.index();
}

bool IsOpen(int card) {
  return g_server->cards[static_cast<std::size_t>(card)].handle.load(std::memory_order_acquire) != nullptr;
}

fulldeck_simulated_card* HandleOf(int card) {
  OpenCard& open = g_server->cards[static_cast<std::size_t>(card)];
  fulldeck_simulated_card* handle = open.handle.load(std::memory_order_acquire);
  if (handle != nullptr) return handle;
  const std::lock_guard lock(g_server->opening);
  handle = open.handle.load(std::memory_order_acquire);
  if (handle != nullptr) return handle;
  const int error = fulldeck_simulated_card_open(card, &handle);
  TORCH_CHECK(error == 0, CardName(card), error == -ENODEV ? ": device lost: " : ": the card cannot be opened: ",
              Describe(fulldeck_simulated_card_error()), ".");
  open.handle.store(handle, std::memory_order_release);
  return handle;
}

std::uint32_t ForkGeneration() {
  return g_server->fork_generation.load(std::memory_order_relaxed);
}

void ThrowLost(int card) {
  TORCH_CHECK(false, CardName(card),
              ": device lost: the simulated card has dropped off the bus. fulldeck devices shows which are there.");
}

Operation::Operation(int card)
    : handle_(HandleOf(card)),
      card_(card),
      begun_(fulldeck_simulated_card_begin(handle_)),
      faults_(fulldeck_simulated_card_faults(handle_)) {
  if (__builtin_expect(HasFaults(faults_), 0)) {
    try {
      faults_ = ApplyFaults(card_, handle_, faults_);
    } catch (...) {
      fulldeck_simulated_card_end(handle_, begun_);
      throw;
    }
  }
}

void WaitForCard(int card) {
  const fulldeck_simulated_card* handle = HandleOf(card);
  const std::uint32_t faults = fulldeck_simulated_card_faults(handle);
  if (HasFaults(faults)) ApplyFaults(card, handle, faults);
}

Operation::~Operation() {
  if (__builtin_expect((faults_ & FULLDECK_SIMULATED_SLOW) != 0, 0)) {
    const double factor = fulldeck_simulated_card_slow_factor(handle_);
    const auto now = base::SteadyClock::Instance().Now().time_since_epoch().count();
    const auto took = static_cast<double>(now - static_cast<std::int64_t>(begun_));
    if (factor > 1 && took > 0) {
      // Short sleeps overshoot, so small debts are accumulated first.
      std::atomic<std::int64_t>& debt = g_server->cards[static_cast<std::size_t>(card_)].slow_debt_ns;
      const auto mine = static_cast<std::int64_t>(took * (factor - 1));
      if (debt.fetch_add(mine, std::memory_order_relaxed) + mine > 200'000) {
        const std::int64_t owed = debt.exchange(0, std::memory_order_relaxed);
        const auto begin = base::SteadyClock::Instance().Now();
        std::this_thread::sleep_for(nanoseconds(owed));
        const auto slept = base::SteadyClock::Instance().Now() - begin;
        debt.fetch_sub(std::chrono::duration_cast<nanoseconds>(slept).count() - owed, std::memory_order_relaxed);
      }
    }
  }
  fulldeck_simulated_card_end(handle_, begun_);
}

}  // namespace fulldeck::simulator
