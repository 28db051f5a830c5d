// Which rank gets which card and which CPUs. Pure: reads no file, starts nothing; every rule is a row of the test's
// table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/card.h"
#include "device/host.h"

namespace fulldeck::job {

struct PlacementRequest {
  // The cards that may be used, in torch's order. Empty: ranks run on the node's CPUs.
  std::vector<device::Card> cards;
  device::HostTopology host;
  int ranks = 0;
  bool share_cards = false;  // more ranks than cards is intended
};

struct RankPlacement {
  int rank = 0;
  std::optional<std::size_t> card;  // position in the request's cards; absent for a rank on the CPUs
  std::vector<int> cpus;            // near the card; divided among the ranks of the same NUMA node
  int threads = 1;                  // for OMP_NUM_THREADS: its share of the CPUs, at least 1
};

// Rank r gets card r, or with shared cards card r modulo their number. Fails, with the reason and the flag that would
// allow it, for more ranks than cards, a card that no longer responds, or two cards with one serial (one card counted
// twice).
base::Result<std::vector<RankPlacement>> Place(const PlacementRequest& request);

}  // namespace fulldeck::job
