// FULLDECK_SIMULATE: which simulated cards this process sees, and their faults.
//
//   KIND:COUNT[,OPTION=VALUE…]        gcu:8        npu:4,memory=64MiB        gcu:8,idle=3,slow=1+2:2.5
//
// Not the cards' shared state: that is simulated_state.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "fulldeck/simulated_card.h"

namespace fulldeck::wire {

// Faults of a card: the bits of the public header, which documents each. A card can have several; the numbers are part
// of the format of the shared state.
enum SimulatedFault : std::uint32_t {
  kFaultIdle = FULLDECK_SIMULATED_IDLE,
  kFaultSlow = FULLDECK_SIMULATED_SLOW,
  kFaultBroken = FULLDECK_SIMULATED_BROKEN,
  kFaultLying = FULLDECK_SIMULATED_LYING,
  kFaultHung = FULLDECK_SIMULATED_HUNG,
  kFaultDropped = FULLDECK_SIMULATED_DROPPED,
};

struct SimulatedKind {
  const char* name;    // as in FULLDECK_SIMULATE, and torch's name of the device
  const char* vendor;  // equal to VendorTraits::name
  const char* model;   // the card that it models
  std::uint64_t memory_bytes;
  bool trainable;             // torch supports a third-party device of that name
  const char* visibility[2];  // visible-device lists, the first one that is set applies; as in VendorTraits
};

std::span<const SimulatedKind> SimulatedKinds();

struct SimulatedCardSpec {
  std::uint32_t faults = 0;
  double slow_factor = 1;
};

struct SimulatedSpec {
  const SimulatedKind* kind = nullptr;
  std::uint64_t memory_bytes = 0;  // of each card
  std::vector<SimulatedCardSpec> cards;
};

inline constexpr int kMaxSimulatedCards = 64;

// The error names the invalid part and lists the valid forms.
base::Result<SimulatedSpec> ParseSimulatedSpec(std::string_view text);

// The numbers of the cards that a process with this environment may use, in its own order: all of them, or those of the
// kind's visible-device list (TOPS_VISIBLE_DEVICES=3,1: its card 0 is the node's card 3). Parsed like lists of real
// cards (device/visibility.h): an entry that is not a card, or appears twice, is an error; -1 ends the list.
base::Result<std::vector<int>> VisibleSimulatedCards(const SimulatedSpec& spec, const base::Environment& environment);

}  // namespace fulldeck::wire
