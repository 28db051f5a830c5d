// Which rank gets which card and which processors. Pure: reads no file, starts nothing; every rule is a row of the
// test.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/card.h"
#include "device/host.h"

namespace fulldeck::job {

struct PlacementRequest {
  std::vector<device::Card>
      cards;  // those that may be used, in torch's order; none means ranks on the host's processors
  device::HostTopology host;
  int ranks = 0;
  bool share_cards = false;  // more ranks than cards is wanted, not a mistake
};

struct RankPlacement {
  int rank = 0;
  std::optional<std::size_t> card;  // position in the request's cards; absent for a rank on the host
  std::vector<int> cpus;            // near the card; ranks of the same node share them out
  int threads = 1;                  // for OMP_NUM_THREADS: its share of the processors, at least 1
};

// Rank r gets card r; with shared cards r modulo their number. Refused, with the reason and the flag that would allow
// it: more ranks than cards, a card that no longer answers, two cards with one serial (one card counted twice).
base::Result<std::vector<RankPlacement>> Place(const PlacementRequest& request);

}  // namespace fulldeck::job
