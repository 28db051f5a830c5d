#include "collectives/node_levels.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace fulldeck::collectives {

int NodeLevels::NodeOf(int rank) const {
  int node = 0;
  while (node + 1 < levels() && rank >= nodes[node + 1].first) ++node;
  return node;
}

int NodeLevels::Smallest() const {
  return std::min_element(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.count < b.count; })
      ->count;
}

NodeLevels LevelsOf(const std::vector<int>& by_rank) {
  const NodeLevels flat{{{0, static_cast<int>(by_rank.size())}}};
  NodeLevels found;
  std::vector<int> seen;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    if (!seen.empty() && seen.back() == by_rank[rank]) {
      ++found.nodes.back().count;
      continue;
    }
    if (std::find(seen.begin(), seen.end(), by_rank[rank]) != seen.end()) return flat;
    seen.push_back(by_rank[rank]);
    found.nodes.push_back({rank, 1});
  }
  const bool worth_it =
      std::any_of(found.nodes.begin(), found.nodes.end(), [](const auto& node) { return node.count > 1; });
  return worth_it && found.levels() <= kMaxLevels ? found : flat;
}

int NodeOfThisThread() {
  unsigned cpu = 0;
  unsigned node = 0;
  if (syscall(SYS_getcpu, &cpu, &node, nullptr) != 0) return 0;
  return static_cast<int>(node);
}

}  // namespace fulldeck::collectives
