// The rendezvous of nodes: several groups on one loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nodes/node_group.h"
#include "test_nodes.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::FreePort;
using ::fulldeck::testing::RunFor;
using ::fulldeck::testing::RunUntil;
using ::fulldeck::testing::TestNode;
using ::testing::HasSubstr;

class NodeRendezvous : public ::testing::Test {
 protected:
  NodeGroupOptions Options(const std::string& name, std::optional<int> node_rank, int min_nodes, int max_nodes) const {
    NodeGroupOptions options;
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = port_;
    options.node_rank = node_rank;
    options.min_nodes = min_nodes;
    options.max_nodes = max_nodes;
    options.local_ranks = 4;
    options.token = "secret";
    options.host_name = name;
    options.last_call_timeout = 300ms;
    return options;
  }
  std::unique_ptr<TestNode> Node(NodeGroupOptions options) {
    return std::make_unique<TestNode>(loop_, std::move(options));
  }
  std::unique_ptr<TestNode> Joined(NodeGroupOptions options) {
    auto node = Node(std::move(options));
    const auto joined = node->group->Join();
    EXPECT_TRUE(joined.ok()) << joined.error().message;
    return node;
  }

  base::EventLoop loop_;
  int port_ = FreePort();
};

TEST_F(NodeRendezvous, GivesEachNodeItsPlaceByNodeRank) {
  auto options_c = Options("C", 2, 3, 3);
  options_c.local_ranks = 2;
  auto a = Joined(Options("A", 0, 3, 3));
  auto c = Joined(options_c);
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
  EXPECT_EQ(a->starts[0].group_rank, 0);
  EXPECT_EQ(b->starts[0].group_rank, 1);
  EXPECT_EQ(c->starts[0].group_rank, 2);
  EXPECT_EQ(c->starts[0].first_rank, 8);
  for (const TestNode* node : {a.get(), b.get(), c.get()}) {
    const AttemptStart& start = node->starts[0];
    EXPECT_EQ(start.attempt, 0);
    EXPECT_EQ(start.group_world_size, 3);
    EXPECT_EQ(start.world_size, 10);
    EXPECT_EQ(start.master_addr, "127.0.0.1");
    EXPECT_EQ(start.master_port, 40001);
    ASSERT_EQ(start.members.size(), 3U);
    EXPECT_EQ(start.members[1].host_name, "B");
    EXPECT_EQ(start.members[2].first_rank, 8);
    EXPECT_EQ(start.members[2].ranks, 2);
  }
}

TEST_F(NodeRendezvous, WithoutNodeRanksTheFirstAtTheEndpointCoordinates) {
  auto a = Joined(Options("A", std::nullopt, 3, 3));
  auto b = Joined(Options("B", std::nullopt, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Logged("host B"); }));
  auto c = Joined(Options("C", std::nullopt, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
  EXPECT_EQ(a->starts[0].group_rank, 0);
  EXPECT_EQ(b->starts[0].group_rank, 1);
  EXPECT_EQ(c->starts[0].group_rank, 2);
  EXPECT_EQ(a->ports_taken, 1);
  EXPECT_EQ(b->ports_taken + c->ports_taken, 0);
}

TEST_F(NodeRendezvous, WaitsForACoordinatorThatComesLater) {
  auto b = Joined(Options("B", 1, 2, 2));
  RunFor(loop_, 400ms);
  EXPECT_TRUE(b->starts.empty());
  auto a = Joined(Options("A", 0, 2, 2));
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
}

TEST_F(NodeRendezvous, WaitsForACoordinatorThatWentAwayBeforeTheStart) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->Logged("joined the run of host A"); }));
  a.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->Logged("Waiting for it to come back"); }));
  a = Joined(Options("A", 0, 3, 3));
  auto c = Joined(Options("C", 2, 3, 3));
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
  EXPECT_EQ(b->finish_count, 0);
}

TEST_F(NodeRendezvous, ForgetsANodeThatLeavesAndTakesItsSuccessor) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Logged("host B"); }));
  b.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Logged("the launcher of host B (127.0.0.1) ended without a word"); }));
  b = Joined(Options("B", 1, 3, 3));
  auto c = Joined(Options("C", 2, 3, 3));
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
}

TEST_F(NodeRendezvous, StartsWithFewerThanMaxWhenNobodyElseComes) {
  auto a = Joined(Options("A", std::nullopt, 2, 4));
  auto b = Joined(Options("B", std::nullopt, 2, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Logged("host B"); }));
  EXPECT_TRUE(a->starts.empty()) << "others may still come";
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_EQ(a->starts[0].group_world_size, 2);
  EXPECT_EQ(a->starts[0].world_size, 8);
}

TEST_F(NodeRendezvous, NumbersNodesWithoutGapsWhenNodeRanksAreMissing) {
  auto a = Joined(Options("A", 0, 2, 4));
  auto d = Joined(Options("D", 3, 2, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !d->starts.empty(); }));
  EXPECT_EQ(d->starts[0].group_rank, 1);
}

TEST_F(NodeRendezvous, NotifiesALateNodeThatTheRunHasBegun) {
  auto a = Joined(Options("A", std::nullopt, 1, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty(); }));
  auto late = Joined(Options("B", std::nullopt, 1, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return late->gave_up.has_value(); }));
  EXPECT_THAT(*late->gave_up, HasSubstr("the run has begun with 1 host"));
  EXPECT_TRUE(a->stops.empty());
}

TEST_F(NodeRendezvous, RefusesTwoNodesWithOneNodeRankAndNamesBoth) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Logged("host B"); }));
  auto twin = Joined(Options("Twin", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return twin->gave_up.has_value(); }));
  EXPECT_THAT(*twin->gave_up, HasSubstr("host Twin (127.0.0.1) and host B (127.0.0.1) both have --node-rank 1"));
  EXPECT_TRUE(a->Logged("turned away host Twin")) << a->AllLogged();
  EXPECT_EQ(b->finish_count, 0);
}

TEST_F(NodeRendezvous, RefusesAnotherNumberOfNodes) {
  auto a = Joined(Options("A", 0, 2, 2));
  auto b = Joined(Options("B", 1, 2, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->gave_up.has_value(); }));
  EXPECT_THAT(*b->gave_up,
              HasSubstr("host B (127.0.0.1) was started with --nnodes 2:4, but host A (127.0.0.1) with --nnodes 2"));
}

TEST_F(NodeRendezvous, RefusesAWrongTokenOnBothSides) {
  auto a = Joined(Options("A", 0, 2, 2));
  auto options = Options("B", 1, 2, 2);
  options.token = "guess";
  auto b = Joined(options);
  ASSERT_TRUE(
      RunUntil(loop_, [&] { return b->gave_up.has_value() && a->Logged("its token is not the one of this run"); }));
  EXPECT_THAT(*b->gave_up, HasSubstr("the token is not the one of this run"));
  EXPECT_FALSE(a->Logged("host B")) << "a stranger's name is not known: " << a->AllLogged();
}

TEST_F(NodeRendezvous, WorksWithoutATokenOnBothSides) {
  auto options_a = Options("A", 0, 2, 2);
  auto options_b = Options("B", 1, 2, 2);
  options_a.token.clear();
  options_b.token.clear();
  auto a = Joined(options_a);
  auto b = Joined(options_b);
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
}

TEST_F(NodeRendezvous, GivesUpAfterTheJoinTimeoutAndReportsWhoIsMissingEverywhere) {
  auto options_a = Options("A", 0, 4, 4);
  options_a.join_timeout = 700ms;
  options_a.report_interval = 200ms;
  auto a = Joined(options_a);
  auto b = Joined(Options("B", 2, 4, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value() && b->gave_up.has_value(); }));
  for (const TestNode* node : {a.get(), b.get()}) {
    EXPECT_THAT(*node->gave_up, HasSubstr("2 of 4 hosts are here: host A (127.0.0.1), host B (127.0.0.1)"));
    EXPECT_THAT(*node->gave_up, HasSubstr("missing: node ranks 1, 3"));
    EXPECT_TRUE(node->Logged("missing: node ranks 1, 3")) << node->AllLogged();
    EXPECT_EQ(node->finish_count, 1);
  }
}

TEST_F(NodeRendezvous, ReportsThatALoopbackEndpointReachesNobodyElse) {
  auto options = Options("A", std::nullopt, 2, 2);
  options.join_timeout = 200ms;
  auto a = Joined(options);
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value(); }));
  EXPECT_THAT(*a->gave_up, HasSubstr("missing: 1 host"));
  EXPECT_THAT(*a->gave_up, HasSubstr("127.0.0.1 is this host only"));
}

TEST_F(NodeRendezvous, AMemberWithoutACoordinatorGivesUpWithTheReason) {
  auto options = Options("B", 1, 2, 2);
  options.join_timeout = 500ms;
  options.report_interval = 100ms;
  auto b = Joined(options);
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->gave_up.has_value(); }));
  EXPECT_THAT(*b->gave_up, HasSubstr("no coordinator answered at 127.0.0.1:" + std::to_string(port_)));
  EXPECT_THAT(*b->gave_up, HasSubstr("Connection refused"));
  EXPECT_THAT(*b->gave_up, HasSubstr("--node-rank 0 must run there"));
  EXPECT_TRUE(b->Logged("waiting for the coordinator")) << b->AllLogged();
}

TEST_F(NodeRendezvous, AnUnknownNameIsReportedAndRetried) {
  auto options = Options("B", 1, 2, 2);
  options.endpoint_host = "no-such-host.invalid";
  options.join_timeout = 300ms;
  auto b = Joined(options);
  ASSERT_TRUE(RunUntil(
      loop_, [&] { return b->gave_up.has_value(); }, 120s));
  EXPECT_THAT(*b->gave_up, HasSubstr("the host name no-such-host.invalid cannot be looked up"));
}

TEST_F(NodeRendezvous, AnotherProgramOnThePortIsNamedToNodeRankZero) {
  int port = 0;
  const base::UniqueFd held = ::fulldeck::testing::ListenOnLoopback(port_, port);
  auto a = Node(Options("A", 0, 2, 2));
  const auto joined = a->group->Join();
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("port " + std::to_string(port_)));
  EXPECT_THAT(joined.error().message, HasSubstr("taken by pid " + std::to_string(getpid())));
}

TEST_F(NodeRendezvous, AnotherProgramOnThePortIsNoRendezvous) {
  int port = 0;
  const base::UniqueFd held = ::fulldeck::testing::ListenOnLoopback(port_, port);
  std::vector<base::UniqueFd> accepted;
  const auto watch = loop_.WhenReadable(held.get(), [&] {
    base::UniqueFd fd(accept4(held.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) return;
    EXPECT_EQ(send(fd.get(), "SSH-2.0-OpenSSH_9\r\n", 19, MSG_NOSIGNAL), 19);
    accepted.push_back(std::move(fd));
  });
  ASSERT_TRUE(watch.ok());
  auto a = Joined(Options("A", std::nullopt, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value(); }));
  EXPECT_THAT(*a->gave_up, HasSubstr("is no fulldeck launcher"));
  loop_.Remove(*watch);
}

TEST_F(NodeRendezvous, AProgramThatOnlyListensIsReportedAsSuch) {
  int port = 0;
  const base::UniqueFd held = ::fulldeck::testing::ListenOnLoopback(port_, port);
  auto options = Options("A", std::nullopt, 2, 2);
  options.handshake_timeout = 150ms;
  options.join_timeout = 600ms;
  auto a = Joined(options);
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value(); }));
  EXPECT_THAT(*a->gave_up, HasSubstr("takes connections, but does not answer as a fulldeck launcher does"));
}

TEST_F(NodeRendezvous, ListensOnAllInterfacesWhenNodeRankZeroHasAnotherAddressOutside) {
  auto options_a = Options("A", 0, 2, 2);
  options_a.endpoint_host = "192.0.2.1";  // an address reserved for documentation; no machine has it
  auto a = Joined(options_a);
  auto b = Joined(Options("B", 1, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_TRUE(a->Logged("listening on all interfaces of this host for the meeting point 192.0.2.1")) << a->AllLogged();
  EXPECT_EQ(b->starts[0].master_addr, "127.0.0.1") << "as this member reached it";
}

TEST_F(NodeRendezvous, TheUserMayChooseWhichNodeCoordinates) {
  auto options_a = Options("A", std::nullopt, 2, 2);
  auto options_b = Options("B", std::nullopt, 2, 2);
  options_a.is_host = true;
  options_b.is_host = false;
  auto b = Joined(options_b);
  RunFor(loop_, 150ms);
  auto a = Joined(options_a);
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_EQ(a->starts[0].group_rank, 0);
  EXPECT_EQ(a->ports_taken, 1);
}

TEST_F(NodeRendezvous, JoinsOverIpv6) {
  const base::UniqueFd probe(socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  if (!probe.valid() || bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  auto options_a = Options("A", std::nullopt, 2, 2);
  auto options_b = Options("B", std::nullopt, 2, 2);
  options_a.endpoint_host = options_b.endpoint_host = "::1";
  auto a = Joined(options_a);
  auto b = Joined(options_b);
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_EQ(b->starts[0].master_addr, "::1");
}

TEST_F(NodeRendezvous, TheAddressThatTheUserNamedIsTheMasterOfAll) {
  auto options_a = Options("A", 0, 2, 2);
  options_a.local_addr = "127.0.0.7";
  auto a = Joined(options_a);
  auto b = Joined(Options("B", 1, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_EQ(a->starts[0].master_addr, "127.0.0.7");
  EXPECT_EQ(b->starts[0].master_addr, "127.0.0.7");
}

TEST_F(NodeRendezvous, ImpossibleOptionsAreRefusedAtOnce) {
  const auto refusal = [&](NodeGroupOptions options) {
    auto node = Node(std::move(options));
    const auto joined = node->group->Join();
    return joined.ok() ? std::string("accepted") : joined.error().message;
  };
  auto options = Options("A", 0, 2, 2);
  options.endpoint_host = "";
  EXPECT_THAT(refusal(options), HasSubstr("--rdzv-endpoint"));
  options = Options("A", 0, 2, 2);
  options.endpoint_port = 65536;
  EXPECT_THAT(refusal(options), HasSubstr("65536"));
  EXPECT_THAT(refusal(Options("A", 2, 2, 2)), HasSubstr("--node-rank 2 cannot be with --nnodes 2"));
  EXPECT_THAT(refusal(Options("A", -1, 2, 2)), HasSubstr("--node-rank -1"));
  options = Options("A", 1, 2, 2);
  options.is_host = true;
  EXPECT_THAT(refusal(options), HasSubstr("is_host=1 contradicts --node-rank 1"));
  EXPECT_THAT(refusal(Options("A", 0, 3, 2)), HasSubstr("--nnodes 3:2"));
  EXPECT_THAT(refusal(Options("A", 0, 0, 2)), HasSubstr("--nnodes 0:2"));
  options = Options("A", 0, 2, 2);
  options.local_ranks = 0;
  EXPECT_THAT(refusal(options), HasSubstr("0 ranks"));
}

TEST_F(NodeRendezvous, WithoutAPortForTheRanksNobodyStarts) {
  auto a = Joined(Options("A", 0, 2, 2));
  a->port_error = "all ports are taken";
  auto b = Joined(Options("B", 1, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value() && b->gave_up.has_value(); }));
  EXPECT_THAT(*b->gave_up, HasSubstr("no port for the ranks on host A (127.0.0.1): all ports are taken"));
}

TEST_F(NodeRendezvous, ALauncherThatIsStoppedWhileItWaitsLeavesAndTheOthersWaitOn) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->Logged("joined the run of host A"); }));
  b->FailAndStop("stopped by SIGTERM");
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->finished && a->Logged("left: stopped by SIGTERM"); }));
  EXPECT_EQ(b->verdict->host_name, "B");
  EXPECT_EQ(a->finish_count, 0);
  a->FailAndStop("stopped by SIGINT");
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->finished; }));
  EXPECT_EQ(a->verdict->summary, "stopped by SIGINT");
}

TEST_F(NodeRendezvous, ALauncherThatIsStoppedBeforeItFoundTheOthersEnds) {
  auto b = Joined(Options("B", 1, 3, 3));
  b->FailAndStop("stopped by SIGTERM");
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->finished; }));
  EXPECT_EQ(b->verdict->summary, "stopped by SIGTERM");
}

TEST_F(NodeRendezvous, FortyNodesJoinAtOnce) {
  std::vector<std::unique_ptr<TestNode>> nodes;
  for (int i = 39; i >= 0; --i) nodes.push_back(Joined(Options("H" + std::to_string(i), i, 40, 40)));
  ASSERT_TRUE(RunUntil(loop_, [&] {
    return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return !node->starts.empty(); });
  }));
  for (std::size_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(nodes[i]->starts[0].group_rank, 39 - static_cast<int>(i));
  for (const auto& node : nodes) node->group->Succeeded();
  EXPECT_TRUE(RunUntil(loop_, [&] {
    return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node->finished && !node->verdict; });
  }));
}

TEST_F(NodeRendezvous, AGroupMayBeDestroyedInAnyOfItsCallbacks) {
  NodeGroupEvents events;
  std::unique_ptr<NodeGroup> group;
  bool destroyed = false;
  events.take_master_port = [] { return base::Result<int>(40001); };
  events.start = [&](const AttemptStart&) {
    group.reset();
    destroyed = true;
  };
  group = std::make_unique<NodeGroup>(loop_, Options("A", 0, 1, 1), events);
  ASSERT_TRUE(group->Join().ok());
  EXPECT_TRUE(RunUntil(loop_, [&] { return destroyed; }));
}

}  // namespace
}  // namespace fulldeck::nodes
