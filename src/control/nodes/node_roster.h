// Who may join, who is which host, and who is missing. Pure: rules over a list, so that each is a row in the test.
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

// "host B (10.0.0.2)"
std::string NameOf(const RosterEntry& entry);

// "2", "2:4"
std::string NodeRange(int min_nodes, int max_nodes);

// Why `newcomer` cannot join those that are here, of whom the coordinator is the first; nothing when it can. Names both
// hosts where two contradict each other.
std::optional<std::string> WhyNotJoin(const std::vector<RosterEntry>& here, const NodeGroupOptions& options,
                                      const JoinMessage& newcomer, const std::string& address);

// Index into `here` of the host with node rank, or nothing.
std::optional<std::size_t> FindNodeRank(const std::vector<RosterEntry>& here, std::optional<int> node_rank);

// Indices into `here` by group rank: by node rank where there are any, else as they came.
std::vector<std::size_t> NodeOrder(const std::vector<RosterEntry>& here);

// "1 of 2 hosts is here: host A (10.0.0.1); missing: node rank 1".
std::string DescribeMissingNodes(const std::vector<RosterEntry>& here, const NodeGroupOptions& options);

}  // namespace fulldeck::nodes
