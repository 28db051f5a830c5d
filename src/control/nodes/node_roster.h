// Rules of the rendezvous: which node may join, which group rank each node gets, and which nodes are missing. Pure
// functions over a list, so that each rule is a row of the test's table.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nodes/node_group.h"
#include "nodes/node_messages.h"

namespace fulldeck::nodes {

struct RosterEntry {
  std::string host_name;
  std::string address;
  std::optional<int> node_rank;
  int ranks = 1;
};

// Example: "host B (10.0.0.2)".
std::string NameOf(const RosterEntry& entry);

// Examples: "2", "2:4".
std::string NodeRange(int min_nodes, int max_nodes);

// Why `newcomer` cannot join the nodes in `here`, the first of which is the coordinator; nullopt if it can. Names
// both nodes if their settings contradict each other.
std::optional<std::string> WhyNotJoin(const std::vector<RosterEntry>& here, const NodeGroupOptions& options,
                                      const JoinMessage& newcomer, const std::string& address);

// Index into `here` of the node with this node rank; nullopt if there is none.
std::optional<std::size_t> FindNodeRank(const std::vector<RosterEntry>& here, std::optional<int> node_rank);

// Indices into `here` in group-rank order: by node rank if nodes have one, otherwise in order of arrival.
std::vector<std::size_t> NodeOrder(const std::vector<RosterEntry>& here);

// Example: "1 of 2 hosts is here: host A (10.0.0.1); missing: node rank 1".
std::string DescribeMissingNodes(const std::vector<RosterEntry>& here, const NodeGroupOptions& options);

}  // namespace fulldeck::nodes
