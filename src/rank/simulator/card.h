// The cards of this process: how many, what they are called, which one a thread uses now, and what it means to compute
// on one (busy time, faults). Knows nothing of tensors. Bytes are memory.h's.
//
// A card is opened when it is first used, and again in a child made by fork, which has a slot of its own in what the
// cards' processes share. Threads: all of it may be called from any.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "fulldeck/simulated_card.h"

namespace fulldeck::simulator {

// Reads FULLDECK_SIMULATE, once. 0 when torch can be given such cards; else ENODEV (not set, or a kind that torch has
// itself) or EINVAL (malformed), and the reason in `why`.
int ReadServer(std::string& why);

// What follows may be called once ReadServer() has found nothing wrong.
int CardCount();                    // that this process may use (visible-device lists)
const std::string& KindName();      // "gcu"
std::string CardName(int card);     // "gcu:3"
std::uint64_t BytesOfCard();        // memory of each
std::uint64_t BytesHeld(int card);  // by all processes

// Throws an IndexError as a vendor's library does when there is no such card.
void CheckCard(c10::DeviceIndex card);

// The thread's current card.
c10::DeviceIndex CurrentCard();
void SetCurrentCard(c10::DeviceIndex card);  // throws when there is none
// Of a device without an index, the current one.
int CardOf(c10::Device device);

// The shared state's handle of a card; throws when it cannot be opened ("gcu:3: device lost …").
fulldeck_simulated_card* HandleOf(int card);
bool IsOpen(int card);

// Grows by one in each child made by fork: what was held before is the parent's.
std::uint32_t ForkGeneration();

// One operation on a card, from its construction to its destruction: counted as busy, and subject to the card's faults.
// Throws when the card is broken or lost; does not return while it hangs; a slow card's operation ends later.
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

// Waits for the card's work, all of which is done when its call returns. Subject to the card's faults as an operation
// is, but no work: a program that only waits leaves its card idle.
void WaitForCard(int card);

[[noreturn]] void ThrowLost(int card);

}  // namespace fulldeck::simulator
