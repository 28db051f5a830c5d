#include "nodes/node_roster.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace fulldeck::nodes {
namespace {

// Longer lists end with the number of names that are not shown.
constexpr std::size_t kNamesShown = 16;

std::string Listed(std::vector<std::string> names) {
  if (names.size() > kNamesShown) {
    const std::size_t more = names.size() - kNamesShown;
    names.resize(kNamesShown);
    names.push_back("and " + std::to_string(more) + " more");
  }
  return base::Join(names, ", ");
}

}  // namespace

std::string NameOf(const RosterEntry& entry) {
  return "host " + entry.host_name + " (" + entry.address + ")";
}

std::string NodeRange(int min_nodes, int max_nodes) {
  return min_nodes == max_nodes ? std::to_string(max_nodes)
                                : std::to_string(min_nodes) + ":" + std::to_string(max_nodes);
}

std::optional<std::size_t> FindNodeRank(const std::vector<RosterEntry>& here, std::optional<int> node_rank) {
  if (!node_rank) return std::nullopt;
  const auto found =
      std::find_if(here.begin(), here.end(), [&](const RosterEntry& entry) { return entry.node_rank == node_rank; });
  if (found == here.end()) return std::nullopt;
  return static_cast<std::size_t>(found - here.begin());
}

std::optional<std::string> WhyNotJoin(const std::vector<RosterEntry>& here, const NodeGroupOptions& options,
                                      const JoinMessage& newcomer, const std::string& address) {
  const RosterEntry& coordinator = here.front();
  const std::string new_name = NameOf({newcomer.host_name, address});
  if (newcomer.min_nodes != options.min_nodes || newcomer.max_nodes != options.max_nodes) {
    return new_name + " was started with --nnodes " + NodeRange(newcomer.min_nodes, newcomer.max_nodes) + ", but " +
           NameOf(coordinator) + " with --nnodes " + NodeRange(options.min_nodes, options.max_nodes) +
           ": give the same to all";
  }
  if (newcomer.node_rank.has_value() != coordinator.node_rank.has_value()) {
    const std::string with = newcomer.node_rank ? new_name : NameOf(coordinator);
    const std::string without = newcomer.node_rank ? NameOf(coordinator) : new_name;
    return with + " has a --node-rank, but " + without + " has none: give one to every host, or to none";
  }
  if (newcomer.node_rank && *newcomer.node_rank >= options.max_nodes) {
    return new_name + " has --node-rank " + std::to_string(*newcomer.node_rank) + ", but " + NameOf(coordinator) +
           " expects at most " + std::to_string(options.max_nodes) + " hosts, which are numbered from 0";
  }
  if (const auto taken = FindNodeRank(here, newcomer.node_rank)) {
    return new_name + " and " + NameOf(here[*taken]) + " both have --node-rank " + std::to_string(*newcomer.node_rank) +
           ": give each host its own";
  }
  if (here.size() >= static_cast<std::size_t>(options.max_nodes)) {
    return new_name + " is one too many: the run has its " + std::to_string(here.size()) + " hosts";
  }
  return std::nullopt;
}

std::vector<std::size_t> NodeOrder(const std::vector<RosterEntry>& here) {
  std::vector<std::size_t> order(here.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return here[one].node_rank.value_or(0) < here[other].node_rank.value_or(0);
  });
  return order;
}

std::string DescribeMissingNodes(const std::vector<RosterEntry>& here, const NodeGroupOptions& options) {
  std::vector<std::string> names;
  names.reserve(here.size());
  for (const RosterEntry& entry : here) names.push_back(NameOf(entry));
  std::string text = std::to_string(here.size()) + " of " + NodeRange(options.min_nodes, options.max_nodes) +
                     (here.size() == 1 ? " hosts is here: " : " hosts are here: ") + Listed(std::move(names));
  const std::size_t wanted = static_cast<std::size_t>(options.max_nodes);
  if (here.size() >= wanted) return text;
  if (!here.front().node_rank) {
    const std::size_t missing = wanted - here.size();
    return text + "; missing: " + std::to_string(missing) + (missing == 1 ? " host" : " hosts");
  }
  std::vector<std::string> missing;
  for (int rank = 0; rank < options.max_nodes; ++rank) {
    if (!FindNodeRank(here, rank)) missing.push_back(std::to_string(rank));
  }
  text += missing.size() == 1 ? "; missing: node rank " : "; missing: node ranks ";
  return text + Listed(std::move(missing));
}

}  // namespace fulldeck::nodes
