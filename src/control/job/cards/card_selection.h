// Which cards a run may use: applies --devices to the inventory and respects visible-device lists. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "device/inventory.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {

struct CardSelection {
  std::vector<device::Card> cards;  // one vendor's, in torch's order or that of --devices; empty: run on the CPUs
  int ranks = 1;                    // --nproc-per-node, resolved
  bool cpu_requested = false;       // the user specified cpu, or there is no card
  std::vector<std::string> notes;   // whole sentences to log before the start: hidden cards, dropped cards …
};

// If several launchers run on this node (local_launchers > 1), each gets its share of the cards: the
// local_launcher-th. `cpus`: how many CPUs this process may use.
//
// A card that no longer responds stays in the selection, so that Place rejects it with the fix. Only if the user
// asked for fewer ranks than there are working cards, it is omitted with a note.
//
// Errors list what is available: unknown kind, an index that does not exist or is hidden by a visibility variable,
// cards of two kinds under `auto` (name one), a kind in --nproc-per-node that contradicts --devices, a malformed
// visible-device list, launchers that would put several ranks on a card without --share-cards.
base::Result<CardSelection> SelectCards(const LaunchFlags& flags, const device::Inventory& inventory, int cpus,
                                        int local_launcher = 0, int local_launchers = 1);

}  // namespace fulldeck::job
