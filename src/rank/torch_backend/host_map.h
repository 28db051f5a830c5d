// Which members of a group share a host. Two processes do when they have the same boot id and the same network
// namespace: the engine meets over abstract sockets, which do not cross namespaces.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace fulldeck::torch_backend {

// What one member says of the host that it runs on.
struct HostName {
  std::string key;   // equal: the same host
  std::string name;  // for people

  std::string ToText() const;
  static HostName FromText(const std::string& text);
};
HostName ThisHost();

struct HostMap {
  std::vector<int> host_of;               // by rank; hosts are numbered in the order of their first ranks
  std::vector<std::vector<int>> members;  // by host: its ranks in order
  std::vector<std::string> names;         // by host

  int hosts() const { return static_cast<int>(members.size()); }
  // Does every host have as many members?
  bool even() const;
  // Of a rank: its place among those of its host.
  int LocalRank(int rank) const;

  // Pure. `said` is by rank.
  static HostMap Of(const std::vector<HostName>& said);
};

// What the members of a group must agree on before they can meet.
struct Introduction {
  HostMap hosts;
  std::string secret;  // rank 0's, the same for all: the key of the group
  // The keys of this group begin so. A store may serve several groups one after another.
  std::string prefix;
};
// Through the store; blocks until all have said who they are, or throws after the time-out.
Introduction Introduce(c10d::Store& store, int rank, int size, const HostName& here, std::chrono::milliseconds timeout);

}  // namespace fulldeck::torch_backend
