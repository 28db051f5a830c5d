// How hosts come together: several groups on one loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nodes/host_group.h"
#include "test_hosts.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::FreePort;
using ::fulldeck::testing::RunFor;
using ::fulldeck::testing::RunUntil;
using ::fulldeck::testing::TestHost;
using ::testing::HasSubstr;

class HostGathering : public ::testing::Test {
 protected:
  HostGroupOptions Options(const std::string& name, std::optional<int> node_rank, int min_hosts, int max_hosts) const {
    HostGroupOptions options;
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = port_;
    options.node_rank = node_rank;
    options.min_hosts = min_hosts;
    options.max_hosts = max_hosts;
    options.local_ranks = 4;
    options.token = "secret";
    options.host_name = name;
    options.last_call_timeout = 300ms;
    return options;
  }
  std::unique_ptr<TestHost> Host(HostGroupOptions options) {
    return std::make_unique<TestHost>(loop_, std::move(options));
  }
  std::unique_ptr<TestHost> Joined(HostGroupOptions options) {
    auto host = Host(std::move(options));
    const auto joined = host->group->Join();
    EXPECT_TRUE(joined.ok()) << joined.error().message;
    return host;
  }

  base::EventLoop loop_;
  int port_ = FreePort();
};

TEST_F(HostGathering, GivesEachHostItsPlaceByNodeRank) {
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
  for (const TestHost* host : {a.get(), b.get(), c.get()}) {
    const AttemptStart& start = host->starts[0];
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

TEST_F(HostGathering, WithoutNodeRanksTheFirstAtTheMeetingPointCoordinates) {
  auto a = Joined(Options("A", std::nullopt, 3, 3));
  auto b = Joined(Options("B", std::nullopt, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Said("host B"); }));
  auto c = Joined(Options("C", std::nullopt, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
  EXPECT_EQ(a->starts[0].group_rank, 0);
  EXPECT_EQ(b->starts[0].group_rank, 1);
  EXPECT_EQ(c->starts[0].group_rank, 2);
  EXPECT_EQ(a->ports_taken, 1);
  EXPECT_EQ(b->ports_taken + c->ports_taken, 0);
}

TEST_F(HostGathering, WaitsForACoordinatorThatComesLater) {
  auto b = Joined(Options("B", 1, 2, 2));
  RunFor(loop_, 400ms);
  EXPECT_TRUE(b->starts.empty());
  auto a = Joined(Options("A", 0, 2, 2));
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
}

TEST_F(HostGathering, WaitsForACoordinatorThatWentAwayBeforeTheStart) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->Said("joined the run of host A"); }));
  a.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->Said("Waiting for it to come back"); }));
  a = Joined(Options("A", 0, 3, 3));
  auto c = Joined(Options("C", 2, 3, 3));
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
  EXPECT_EQ(b->endings, 0);
}

TEST_F(HostGathering, ForgetsAHostThatLeavesAndTakesItsSuccessor) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Said("host B"); }));
  b.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Said("the launcher of host B (127.0.0.1) ended without a word"); }));
  b = Joined(Options("B", 1, 3, 3));
  auto c = Joined(Options("C", 2, 3, 3));
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty() && !c->starts.empty(); }));
}

TEST_F(HostGathering, StartsWithFewerThanMaxWhenNobodyElseComes) {
  auto a = Joined(Options("A", std::nullopt, 2, 4));
  auto b = Joined(Options("B", std::nullopt, 2, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Said("host B"); }));
  EXPECT_TRUE(a->starts.empty()) << "others may still come";
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_EQ(a->starts[0].group_world_size, 2);
  EXPECT_EQ(a->starts[0].world_size, 8);
}

TEST_F(HostGathering, NumbersHostsWithoutGapsWhenNodeRanksAreMissing) {
  auto a = Joined(Options("A", 0, 2, 4));
  auto d = Joined(Options("D", 3, 2, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !d->starts.empty(); }));
  EXPECT_EQ(d->starts[0].group_rank, 1);
}

TEST_F(HostGathering, TellsALateHostThatTheRunHasBegun) {
  auto a = Joined(Options("A", std::nullopt, 1, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty(); }));
  auto late = Joined(Options("B", std::nullopt, 1, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return late->gave_up.has_value(); }));
  EXPECT_THAT(*late->gave_up, HasSubstr("the run has begun with 1 host"));
  EXPECT_TRUE(a->stops.empty());
}

TEST_F(HostGathering, RefusesTwoHostsWithOneNodeRankAndNamesBoth) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->Said("host B"); }));
  auto twin = Joined(Options("Twin", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return twin->gave_up.has_value(); }));
  EXPECT_THAT(*twin->gave_up, HasSubstr("host Twin (127.0.0.1) and host B (127.0.0.1) both have --node-rank 1"));
  EXPECT_TRUE(a->Said("turned away host Twin")) << a->AllSaid();
  EXPECT_EQ(b->endings, 0);
}

TEST_F(HostGathering, RefusesAnotherNumberOfHosts) {
  auto a = Joined(Options("A", 0, 2, 2));
  auto b = Joined(Options("B", 1, 2, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->gave_up.has_value(); }));
  EXPECT_THAT(*b->gave_up,
              HasSubstr("host B (127.0.0.1) was started with --nnodes 2:4, but host A (127.0.0.1) with --nnodes 2"));
}

TEST_F(HostGathering, RefusesAWrongTokenOnBothSides) {
  auto a = Joined(Options("A", 0, 2, 2));
  auto options = Options("B", 1, 2, 2);
  options.token = "guess";
  auto b = Joined(options);
  ASSERT_TRUE(
      RunUntil(loop_, [&] { return b->gave_up.has_value() && a->Said("its token is not the one of this run"); }));
  EXPECT_THAT(*b->gave_up, HasSubstr("the token is not the one of this run"));
  EXPECT_FALSE(a->Said("host B")) << "a stranger's name is not known: " << a->AllSaid();
}

TEST_F(HostGathering, WorksWithoutATokenOnBothSides) {
  auto options_a = Options("A", 0, 2, 2);
  auto options_b = Options("B", 1, 2, 2);
  options_a.token.clear();
  options_b.token.clear();
  auto a = Joined(options_a);
  auto b = Joined(options_b);
  EXPECT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
}

TEST_F(HostGathering, GivesUpAfterTheJoinTimeoutAndSaysWhoIsMissingEverywhere) {
  auto options_a = Options("A", 0, 4, 4);
  options_a.join_timeout = 700ms;
  options_a.report_interval = 200ms;
  auto a = Joined(options_a);
  auto b = Joined(Options("B", 2, 4, 4));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value() && b->gave_up.has_value(); }));
  for (const TestHost* host : {a.get(), b.get()}) {
    EXPECT_THAT(*host->gave_up, HasSubstr("2 of 4 hosts are here: host A (127.0.0.1), host B (127.0.0.1)"));
    EXPECT_THAT(*host->gave_up, HasSubstr("missing: node ranks 1, 3"));
    EXPECT_TRUE(host->Said("missing: node ranks 1, 3")) << host->AllSaid();
    EXPECT_EQ(host->endings, 1);
  }
}

TEST_F(HostGathering, SaysThatALoopbackMeetingPointReachesNobodyElse) {
  auto options = Options("A", std::nullopt, 2, 2);
  options.join_timeout = 200ms;
  auto a = Joined(options);
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value(); }));
  EXPECT_THAT(*a->gave_up, HasSubstr("missing: 1 host"));
  EXPECT_THAT(*a->gave_up, HasSubstr("127.0.0.1 is this host only"));
}

TEST_F(HostGathering, AMemberWithoutACoordinatorGivesUpWithTheReason) {
  auto options = Options("B", 1, 2, 2);
  options.join_timeout = 500ms;
  options.report_interval = 100ms;
  auto b = Joined(options);
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->gave_up.has_value(); }));
  EXPECT_THAT(*b->gave_up, HasSubstr("no coordinator answered at 127.0.0.1:" + std::to_string(port_)));
  EXPECT_THAT(*b->gave_up, HasSubstr("Connection refused"));
  EXPECT_THAT(*b->gave_up, HasSubstr("--node-rank 0 must run there"));
  EXPECT_TRUE(b->Said("waiting for the coordinator")) << b->AllSaid();
}

TEST_F(HostGathering, ANameThatNobodyKnowsIsToldAndTriedAgain) {
  auto options = Options("B", 1, 2, 2);
  options.endpoint_host = "no-such-host.invalid";
  options.join_timeout = 300ms;
  auto b = Joined(options);
  ASSERT_TRUE(RunUntil(
      loop_, [&] { return b->gave_up.has_value(); }, 120s));
  EXPECT_THAT(*b->gave_up, HasSubstr("the host name no-such-host.invalid cannot be looked up"));
}

TEST_F(HostGathering, AnotherProgramOnThePortIsNamedToNodeRankZero) {
  int port = 0;
  const base::UniqueFd held = ::fulldeck::testing::ListenOnLoopback(port_, port);
  auto a = Host(Options("A", 0, 2, 2));
  const auto joined = a->group->Join();
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("port " + std::to_string(port_)));
  EXPECT_THAT(joined.error().message, HasSubstr("taken by pid " + std::to_string(getpid())));
}

TEST_F(HostGathering, AnotherProgramOnThePortIsNoMeetingPoint) {
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

TEST_F(HostGathering, AProgramThatOnlyListensIsToldAsSuch) {
  int port = 0;
  const base::UniqueFd held = ::fulldeck::testing::ListenOnLoopback(port_, port);
  auto options = Options("A", std::nullopt, 2, 2);
  options.handshake_timeout = 150ms;
  options.join_timeout = 600ms;
  auto a = Joined(options);
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value(); }));
  EXPECT_THAT(*a->gave_up, HasSubstr("takes connections, but does not answer as a fulldeck launcher does"));
}

TEST_F(HostGathering, ListensOnAllInterfacesWhenNodeRankZeroHasAnotherAddressOutside) {
  auto options_a = Options("A", 0, 2, 2);
  options_a.endpoint_host = "192.0.2.1";  // an address for documents: of nobody
  auto a = Joined(options_a);
  auto b = Joined(Options("B", 1, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_TRUE(a->Said("listening on all interfaces of this host for the meeting point 192.0.2.1")) << a->AllSaid();
  EXPECT_EQ(b->starts[0].master_addr, "127.0.0.1") << "as this member reached it";
}

TEST_F(HostGathering, TheUserMaySayWhichHostCoordinates) {
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

TEST_F(HostGathering, MeetsThroughIpv6) {
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

TEST_F(HostGathering, TheAddressThatTheUserNamedIsTheMasterOfAll) {
  auto options_a = Options("A", 0, 2, 2);
  options_a.local_addr = "127.0.0.7";
  auto a = Joined(options_a);
  auto b = Joined(Options("B", 1, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return !a->starts.empty() && !b->starts.empty(); }));
  EXPECT_EQ(a->starts[0].master_addr, "127.0.0.7");
  EXPECT_EQ(b->starts[0].master_addr, "127.0.0.7");
}

TEST_F(HostGathering, ImpossibleOptionsAreRefusedAtOnce) {
  const auto refusal = [&](HostGroupOptions options) {
    auto host = Host(std::move(options));
    const auto joined = host->group->Join();
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

TEST_F(HostGathering, WithoutAPortForTheRanksNobodyStarts) {
  auto a = Joined(Options("A", 0, 2, 2));
  a->port_trouble = "all ports are taken";
  auto b = Joined(Options("B", 1, 2, 2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->gave_up.has_value() && b->gave_up.has_value(); }));
  EXPECT_THAT(*b->gave_up, HasSubstr("no port for the ranks on host A (127.0.0.1): all ports are taken"));
}

TEST_F(HostGathering, ALauncherThatIsStoppedWhileItWaitsLeavesAndTheOthersWaitOn) {
  auto a = Joined(Options("A", 0, 3, 3));
  auto b = Joined(Options("B", 1, 3, 3));
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->Said("joined the run of host A"); }));
  b->FailAndStop("stopped by SIGTERM");
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->finished && a->Said("left: stopped by SIGTERM"); }));
  EXPECT_EQ(b->verdict->host_name, "B");
  EXPECT_EQ(a->endings, 0);
  a->FailAndStop("stopped by SIGINT");
  ASSERT_TRUE(RunUntil(loop_, [&] { return a->finished; }));
  EXPECT_EQ(a->verdict->summary, "stopped by SIGINT");
}

TEST_F(HostGathering, ALauncherThatIsStoppedBeforeItFoundTheOthersEnds) {
  auto b = Joined(Options("B", 1, 3, 3));
  b->FailAndStop("stopped by SIGTERM");
  ASSERT_TRUE(RunUntil(loop_, [&] { return b->finished; }));
  EXPECT_EQ(b->verdict->summary, "stopped by SIGTERM");
}

TEST_F(HostGathering, FortyHostsAtOnceComeTogether) {
  std::vector<std::unique_ptr<TestHost>> hosts;
  for (int i = 39; i >= 0; --i) hosts.push_back(Joined(Options("H" + std::to_string(i), i, 40, 40)));
  ASSERT_TRUE(RunUntil(loop_, [&] {
    return std::all_of(hosts.begin(), hosts.end(), [](const auto& host) { return !host->starts.empty(); });
  }));
  for (std::size_t i = 0; i < hosts.size(); ++i) EXPECT_EQ(hosts[i]->starts[0].group_rank, 39 - static_cast<int>(i));
  for (const auto& host : hosts) host->group->Succeeded();
  EXPECT_TRUE(RunUntil(loop_, [&] {
    return std::all_of(hosts.begin(), hosts.end(), [](const auto& host) { return host->finished && !host->verdict; });
  }));
}

TEST_F(HostGathering, AGroupMayBeDestroyedInAnyOfItsCallbacks) {
  HostGroupEvents events;
  std::unique_ptr<HostGroup> group;
  bool destroyed = false;
  events.take_master_port = [] { return base::Result<int>(40001); };
  events.start = [&](const AttemptStart&) {
    group.reset();
    destroyed = true;
  };
  group = std::make_unique<HostGroup>(loop_, Options("A", 0, 1, 1), events);
  ASSERT_TRUE(group->Join().ok());
  EXPECT_TRUE(RunUntil(loop_, [&] { return destroyed; }));
}

}  // namespace
}  // namespace fulldeck::nodes
