#include "collectives/node_levels.h"

#include <gtest/gtest.h>

namespace fulldeck::collectives {
namespace {

std::vector<std::pair<int, int>> NodesOf(const std::vector<int>& by_rank) {
  std::vector<std::pair<int, int>> nodes;
  for (const NodeLevels::Node& node : LevelsOf(by_rank).nodes) nodes.emplace_back(node.first, node.count);
  return nodes;
}
using Nodes = std::vector<std::pair<int, int>>;

TEST(NodeLevels, FollowTheNodesOfAdjacentRanks) {
  EXPECT_EQ(NodesOf({0, 0, 0, 0, 1, 1, 1, 1}), (Nodes{{0, 4}, {4, 4}}));
  EXPECT_EQ(NodesOf({7, 2, 2}), (Nodes{{0, 1}, {1, 2}})) << "the numbers of nodes mean nothing";
  EXPECT_EQ(NodesOf({0, 0, 1, 1, 2, 2, 3}), (Nodes{{0, 2}, {2, 2}, {4, 2}, {6, 1}}));
}

TEST(NodeLevels, AreOneWhereTheyWouldNotHelp) {
  EXPECT_EQ(NodesOf({0}), (Nodes{{0, 1}}));
  EXPECT_EQ(NodesOf({3, 3, 3}), (Nodes{{0, 3}}));
  EXPECT_EQ(NodesOf({0, 1, 0, 1}), (Nodes{{0, 4}})) << "ranks of a node that are not neighbours";
  EXPECT_EQ(NodesOf({0, 1, 2}), (Nodes{{0, 3}})) << "nobody to share with";
  EXPECT_EQ(NodesOf({0, 0, 1, 1, 2, 2, 3, 3, 4, 4}), (Nodes{{0, 10}})) << "too many nodes";
}

TEST(NodeLevels, KnowTheNodeOfARankAndTheSmallestNode) {
  const NodeLevels levels = LevelsOf({0, 0, 0, 1, 2, 2});
  EXPECT_EQ(levels.levels(), 3);
  const std::vector<int> expected = {0, 0, 0, 1, 2, 2};
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(levels.NodeOf(rank), expected[static_cast<std::size_t>(rank)]);
  EXPECT_EQ(levels.Smallest(), 1);
  EXPECT_GE(NodeOfThisThread(), 0);
}

}  // namespace
}  // namespace fulldeck::collectives
