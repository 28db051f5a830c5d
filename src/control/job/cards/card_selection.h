// Which cards a run may use: --devices applied to the inventory, visible-device lists respected. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "device/inventory.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {

struct CardSelection {
  std::vector<device::Card> cards;  // one vendor's, in torch's order or that of --devices; empty: on the cpus
  int ranks = 1;                    // --nproc-per-node, resolved
  bool cpu_requested = false;       // the user said cpu, or there is no card
  std::vector<std::string> notes;   // whole sentences to be said before the start: hidden cards, dropped cards …
};

// Several launchers on this host (local_launchers > 1) each take their share of the cards: the local_launcher-th part.
// `cpus`: how many of them this process may use.
//
// A card that no longer answers stays in the selection, so that Place refuses it with the fix; only where the user
// asked for fewer ranks than there are working cards it is left out, with a note.
//
// Errors name what is there: unknown kind, index that does not exist or is hidden by a visibility variable, cards of
// two kinds under `auto` (name one), a kind asked for in --nproc-per-node that contradicts --devices, a visible-device
// list that cannot be read, launchers that would put several ranks on a card without --share-cards.
base::Result<CardSelection> SelectCards(const LaunchFlags& flags, const device::Inventory& inventory, int cpus,
                                        int local_launcher = 0, int local_launchers = 1);

}  // namespace fulldeck::job
