#include "job/cards/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fulldeck::job {
namespace {

base::Result<void> CheckCards(const std::vector<device::Card>& cards) {
  std::map<std::string, const device::Card*> by_serial;
  for (const device::Card& card : cards) {
    if (!card.present) {
      return base::Error{
          fmt::format("{} has dropped off the bus and cannot take a rank; leave it out with --devices, or reset it",
                      device::NameOf(card))};
    }
    const auto& identity = card.serial ? card.serial : card.uuid;
    if (!identity) continue;
    const auto [other, is_new] = by_serial.emplace(*identity, &card);
    if (!is_new) {
      return base::Error{fmt::format("{} and {} have the same serial {}: two ranks would share one card",
                                     device::NameOf(*other->second), device::NameOf(card), *identity)};
    }
  }
  return {};
}

// The CPUs of the card's NUMA node; all CPUs if the node is unknown.
const std::vector<int>& NearbyCpus(const PlacementRequest& request, const std::optional<int>& node) {
  for (const device::NumaNode& candidate : request.host.nodes) {
    if (node == candidate.number) return candidate.cpus;
  }
  return request.host.cpus;
}

// The `position`th of `shares` parts of `cpus`, as equal as possible; with more shares than CPUs they overlap.
std::vector<int> Share(const std::vector<int>& cpus, std::size_t position, std::size_t shares) {
  if (cpus.empty()) return {};
  if (shares >= cpus.size()) return {cpus[position % cpus.size()]};
  const std::size_t begin = cpus.size() * position / shares;
  const std::size_t end = cpus.size() * (position + 1) / shares;
  return {cpus.begin() + static_cast<std::ptrdiff_t>(begin), cpus.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

base::Result<std::vector<RankPlacement>> Place(const PlacementRequest& request) {
  if (request.ranks < 1)
    return base::Error{fmt::format("{} ranks were asked for; at least 1 is needed", request.ranks)};
  const auto fit = CheckCards(request.cards);
  if (!fit) return fit.error();
  const std::size_t ranks = static_cast<std::size_t>(request.ranks);
  const std::size_t cards = request.cards.size();
  if (cards > 0 && ranks > cards && !request.share_cards) {
    return base::Error{
        fmt::format("{} ranks were asked for and there {}: two ranks would share a card. Ask for {}, or allow it with "
                    "--share-cards, or "
                    "run on the processors with --devices cpu",
                    ranks, cards == 1 ? "is 1 card" : fmt::format("are {} cards", cards),
                    cards == 1 ? "1 rank" : fmt::format("{} ranks", cards))};
  }

  std::vector<RankPlacement> placements(ranks);
  std::map<std::optional<int>, std::vector<std::size_t>> ranks_of_node;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    placements[rank].rank = static_cast<int>(rank);
    std::optional<int> node;
    if (cards > 0) {
      placements[rank].card = rank % cards;
      node = request.cards[rank % cards].numa_node;
    } else if (!request.host.nodes.empty()) {
      // Neighboring ranks on one node, because they exchange the most data.
      node = request.host.nodes[rank * request.host.nodes.size() / ranks].number;
    }
    ranks_of_node[node].push_back(rank);
  }
  for (const auto& [node, members] : ranks_of_node) {
    const std::vector<int>& near = NearbyCpus(request, node);
    for (std::size_t position = 0; position < members.size(); ++position) {
      RankPlacement& placement = placements[members[position]];
      placement.cpus = Share(near, position, members.size());
      placement.threads = static_cast<int>(std::max<std::size_t>(1, near.size() / members.size()));
    }
  }
  return placements;
}

}  // namespace fulldeck::job
