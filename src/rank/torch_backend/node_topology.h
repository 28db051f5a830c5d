// Which members of a group share a node. Two processes do when they have the same boot id and the same network
// namespace: the engine meets over abstract sockets, which do not cross namespaces.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace fulldeck::torch_backend {

// What one member says of the node that it runs on.
struct NodeIdentity {
  std::string key;   // equal: the same node
  std::string name;  // for people

  std::string ToText() const;
  static NodeIdentity FromText(const std::string& text);
};
NodeIdentity ThisNode();

struct NodeTopology {
  std::vector<int> node_of;               // by rank; nodes are numbered in the order of their first ranks
  std::vector<std::vector<int>> members;  // by node: its ranks in order
  std::vector<std::string> names;         // by node

  int nodes() const { return static_cast<int>(members.size()); }
  // Does every node have as many members?
  bool even() const;
  // Of a rank: its place among those of its node.
  int LocalRank(int rank) const;

  // Pure. `identities` is by rank.
  static NodeTopology Of(const std::vector<NodeIdentity>& identities);
};

// What the members of a group must agree on before they can meet.
struct NodeExchange {
  NodeTopology nodes;
  std::string secret;  // rank 0's, the same for all: the key of the group
  // The keys of this group begin so. A store may serve several groups one after another.
  std::string prefix;
};
// Through the store; blocks until all have identities who they are, or throws after the time-out.
NodeExchange ExchangeNodes(c10d::Store& store, int rank, int size, const NodeIdentity& here,
                           std::chrono::milliseconds timeout);

}  // namespace fulldeck::torch_backend
