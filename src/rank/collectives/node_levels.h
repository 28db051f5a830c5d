// Ranks on several NUMA nodes reduce in two levels: the ranks of the first node reduce their own inputs, the ranks of
// the next go on from there, and so on. Only one partial result crosses from node to node instead of every input, and
// the order of the ranks is kept, so the bits are those of the flat way. That needs nodes whose ranks stand side by
// side.
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
  // The fewest ranks of a node.
  int Smallest() const;
};

inline constexpr int kMaxLevels = 4;

// `by_rank`: the node of each rank. One level where ranks of a node are not neighbours, where there are more nodes than
// kMaxLevels, or where no node has two ranks.
NodeLevels LevelsOf(const std::vector<int>& by_rank);

// The NUMA node that the calling thread runs on; 0 where there is but one or the kernel does not tell.
int NodeOfThisThread();

}  // namespace fulldeck::collectives
