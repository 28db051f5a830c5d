#include "nodes/node_roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::nodes {
namespace {

using ::testing::ElementsAre;

NodeGroupOptions Range(int min_nodes, int max_nodes) {
  NodeGroupOptions options;
  options.min_nodes = min_nodes;
  options.max_nodes = max_nodes;
  return options;
}

JoinMessage Newcomer(std::optional<int> node_rank, int min_nodes, int max_nodes) {
  return {"N", std::nullopt, node_rank, 4, min_nodes, max_nodes};
}

TEST(NodeRoster, TakesWhoFits) {
  EXPECT_EQ(WhyNotJoin({{"A", "10.0.0.1", 0, 4}}, Range(2, 2), Newcomer(1, 2, 2), "10.0.0.9"), std::nullopt);
  EXPECT_EQ(WhyNotJoin({{"A", "10.0.0.1", {}, 4}}, Range(1, 4), Newcomer({}, 1, 4), "10.0.0.9"), std::nullopt);
}

TEST(NodeRoster, ReportsWhyNotAndNamesBothNodes) {
  const std::vector<RosterEntry> ranked = {{"A", "10.0.0.1", 0, 4}, {"B", "10.0.0.2", 1, 4}};
  const std::vector<RosterEntry> unranked = {{"A", "10.0.0.1", {}, 4}};
  struct Row {
    std::vector<RosterEntry> here;
    NodeGroupOptions options;
    JoinMessage newcomer;
    const char* reason;
  };
  for (const Row& row : {
           Row{ranked, Range(3, 3), Newcomer(1, 3, 3),
               "host N (10.0.0.9) and host B (10.0.0.2) both have --node-rank 1: give each host its own"},
           Row{ranked, Range(3, 3), Newcomer(3, 3, 3),
               "host N (10.0.0.9) has --node-rank 3, but host A (10.0.0.1) expects at most 3 hosts, which are numbered "
               "from 0"},
           Row{ranked, Range(3, 3), Newcomer(2, 2, 3),
               "host N (10.0.0.9) was started with --nnodes 2:3, but host A (10.0.0.1) with --nnodes 3: give the same "
               "to "
               "all"},
           Row{ranked, Range(3, 3), Newcomer({}, 3, 3),
               "host A (10.0.0.1) has a --node-rank, but host N (10.0.0.9) has none: give one to every host, or to "
               "none"},
           Row{unranked, Range(3, 3), Newcomer(2, 3, 3),
               "host N (10.0.0.9) has a --node-rank, but host A (10.0.0.1) has none: give one to every host, or to "
               "none"},
           Row{unranked, Range(1, 1), Newcomer({}, 1, 1), "host N (10.0.0.9) is one too many: the run has its 1 hosts"},
       }) {
    EXPECT_EQ(WhyNotJoin(row.here, row.options, row.newcomer, "10.0.0.9"), row.reason);
  }
}

TEST(NodeRoster, OrdersByNodeRankElseAsTheyCame) {
  EXPECT_THAT(NodeOrder({{"A", "", 0, 1}, {"D", "", 3, 1}, {"B", "", 1, 1}}), ElementsAre(0, 2, 1));
  EXPECT_THAT(NodeOrder({{"A", "", {}, 1}, {"D", "", {}, 1}, {"B", "", {}, 1}}), ElementsAre(0, 1, 2));
}

TEST(NodeRoster, ReportsWhoIsMissing) {
  EXPECT_EQ(DescribeMissingNodes({{"A", "10.0.0.1", 0, 4}, {"C", "10.0.0.3", 2, 4}}, Range(4, 4)),
            "2 of 4 hosts are here: host A (10.0.0.1), host C (10.0.0.3); missing: node ranks 1, 3");
  EXPECT_EQ(DescribeMissingNodes({{"A", "10.0.0.1", 0, 4}}, Range(2, 2)),
            "1 of 2 hosts is here: host A (10.0.0.1); missing: node rank 1");
  EXPECT_EQ(DescribeMissingNodes({{"A", "10.0.0.1", {}, 4}}, Range(2, 4)),
            "1 of 2:4 hosts is here: host A (10.0.0.1); missing: 3 hosts");
  const std::string of_many = DescribeMissingNodes({{"A", "10.0.0.1", 0, 4}}, Range(1000, 1000));
  EXPECT_LT(of_many.size(), 300U);
  EXPECT_NE(of_many.find("and 983 more"), std::string::npos) << of_many;
}

}  // namespace
}  // namespace fulldeck::nodes
