#include "trainer/stop_signal.h"

#include <atomic>
#include <csignal>

namespace fulldeck::trainer {
namespace {

// Written by the handler, read by the loop; publishes no other data.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait for a lock");

void OnSignal(int number) {
  int none = 0;
  received.compare_exchange_strong(none, number, std::memory_order_relaxed);
}

void Handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  received.store(0, std::memory_order_relaxed);
  Handle(SIGTERM, OnSignal);
  Handle(SIGUSR1, OnSignal);
}

StopSignals::~StopSignals() {
  Handle(SIGTERM, SIG_DFL);
  // A pending second signal must not kill a rank that has saved and is about to report it.
  Handle(SIGUSR1, SIG_IGN);
}

int StopSignals::Received() {
  return received.load(std::memory_order_relaxed);
}

std::string SignalName(int number) {
  if (number == SIGTERM) return "SIGTERM";
  if (number == SIGUSR1) return "SIGUSR1";
  return "signal " + std::to_string(number);
}

int ExitCodeAfter(int signal_number) {
  return signal_number == SIGTERM ? 128 + SIGTERM : 0;
}

}  // namespace fulldeck::trainer
