// The cards of this process: their number, their names, each thread's current card, and the effects of an operation on
// a card (busy time, faults). It does not deal with tensors; memory.h handles memory.
//
// A card is opened on first use, and again in a child made by fork, which has its own slot in the state shared by the
// processes. Any thread may call anything here.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "fulldeck/simulated_card.h"

namespace fulldeck::simulator {

// Reads FULLDECK_SIMULATE, once. Returns 0 if torch can use such cards; otherwise ENODEV (not set, or a kind that torch
// has itself) or EINVAL (malformed), and the reason in `why`.
int ReadServer(std::string& why);

// Call the following only after ReadServer() has returned 0.
int CardCount();                    // usable by this process (visible-device lists)
const std::string& KindName();      // "gcu"
std::string CardName(int card);     // "gcu:3"
std::uint64_t BytesOfCard();        // of each card
std::uint64_t BytesHeld(int card);  // by all processes

// Throws an IndexError, as a vendor's library does, if there is no such card.
void CheckCard(c10::DeviceIndex card);

// The thread's current card.
c10::DeviceIndex CurrentCard();
void SetCurrentCard(c10::DeviceIndex card);  // throws if there is no such card
// For a device without an index, the current card.
int CardOf(c10::Device device);

// The handle of a card in the shared state; throws if it cannot be opened ("gcu:3: device lost …").
fulldeck_simulated_card* HandleOf(int card);
bool IsOpen(int card);

// Incremented in each child made by fork: memory held before that belongs to the parent.
std::uint32_t ForkGeneration();

// One operation on a card, from construction to destruction: counted as busy, and subject to the card's faults. Throws
// when the card is broken or lost, blocks while it hangs, and takes longer on a slow card.
class Operation {
 public:
  explicit Operation(int card);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  bool lies() const { return (faults_ & FULLDECK_SIMULATED_LYING) != 0; }

 private:
  fulldeck_simulated_card* handle_;
  int card_;
  std::uint64_t begun_;
  std::uint32_t faults_;
};

// Synchronizes with the card. All work is already done when its call returns, so this only applies the card's faults,
// as an operation does. It does not count as busy: a program that only waits leaves its card idle.
void WaitForCard(int card);

[[noreturn]] void ThrowLost(int card);

}  // namespace fulldeck::simulator
