// Ranks on several NUMA nodes reduce in levels: the ranks of the first node reduce their own inputs, the ranks of the
// next node continue from that result, and so on. Only one partial result crosses between nodes instead of every input,
// and the order of the ranks is kept, so the bits are equal to those of a flat reduction. This requires that the ranks
// of a node are contiguous.
#pragma once

#include <vector>

namespace fulldeck::collectives {

struct NodeLevels {
  struct Node {
    int first = 0;  // rank
    int count = 0;
  };
  std::vector<Node> nodes;  // one: flat

  int levels() const { return static_cast<int>(nodes.size()); }
  int NodeOf(int rank) const;
  // The number of ranks of the smallest node.
  int Smallest() const;
};

inline constexpr int kMaxLevels = 4;

// `by_rank`: the node of each rank. One level if the ranks of a node are not contiguous, if there are more than
// kMaxLevels nodes, or if no node has two ranks.
NodeLevels LevelsOf(const std::vector<int>& by_rank);

// The NUMA node that the calling thread runs on; 0 if there is only one or the kernel does not report it.
int NodeOfThisThread();

}  // namespace fulldeck::collectives
