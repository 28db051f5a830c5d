// How nodes fail, restart and end together: several groups on one loop, with a proxy for the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "nodes/node_group.h"
#include "test_nodes.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::FreePort;
using ::fulldeck::testing::LinkProxy;
using ::fulldeck::testing::RunFor;
using ::fulldeck::testing::RunUntil;
using ::fulldeck::testing::TestNode;
using ::testing::HasSubstr;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

class NodesInARun : public ::testing::Test {
 protected:
  // Nodes A (coordinator), B, C …; B reaches A through proxy_ if `with_proxy`.
  void Start(int nodes, bool with_proxy = false, int min_nodes = 0) {
    min_nodes_ = min_nodes == 0 ? nodes : min_nodes;
    max_nodes_ = nodes;
    if (with_proxy) proxy_ = std::make_unique<LinkProxy>(loop_, port_);
    for (int i = 0; i < nodes; ++i) Add(i);
    ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(1); }));
  }
  void Add(int index) {
    NodeGroupOptions options = options_;
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = index == 1 && proxy_ ? proxy_->port() : port_;
    options.node_rank = index;
    options.min_nodes = min_nodes_;
    options.max_nodes = max_nodes_;
    options.local_ranks = 4;
    options.token = "secret";
    options.host_name = std::string(1, static_cast<char>('A' + index));
    auto node = std::make_unique<TestNode>(loop_, options);
    ASSERT_TRUE(node->group->Join().ok());
    if (static_cast<std::size_t>(index) < nodes_.size()) {
      nodes_[static_cast<std::size_t>(index)] = std::move(node);
    } else {
      nodes_.push_back(std::move(node));
    }
  }
  TestNode& node(std::size_t index) { return *nodes_[index]; }
  bool AllStarted(std::size_t times) const {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& held) { return held->starts.size() >= times; });
  }
  // Runs until all of these have finished; each must have finished exactly once.
  void ExpectAllFinish(const std::vector<std::size_t>& which, base::Duration timeout = 30s) {
    EXPECT_TRUE(RunUntil(
        loop_, [&] { return std::all_of(which.begin(), which.end(), [&](std::size_t i) { return node(i).finished; }); },
        timeout));
    for (const std::size_t i : which) EXPECT_EQ(node(i).finish_count, 1) << i;
  }
  void ExpectVerdict(const std::vector<std::size_t>& which, const std::string& host_name, int group_rank,
                     const std::string& summary) {
    for (const std::size_t i : which) {
      ASSERT_TRUE(node(i).verdict.has_value()) << i;
      EXPECT_EQ(node(i).verdict->host_name, host_name) << i << ": " << node(i).verdict->summary;
      EXPECT_EQ(node(i).verdict->group_rank, group_rank) << i;
      EXPECT_THAT(node(i).verdict->summary, HasSubstr(summary)) << i;
    }
  }

  base::EventLoop loop_;
  int port_ = FreePort();
  NodeGroupOptions options_;
  int min_nodes_ = 1;
  int max_nodes_ = 1;
  std::unique_ptr<LinkProxy> proxy_;
  std::vector<std::unique_ptr<TestNode>> nodes_;
};

TEST_F(NodesInARun, EndWellWhenAllSucceeded) {
  Start(3);
  node(1).group->Succeeded();
  node(0).group->Succeeded();
  RunFor(loop_, 100ms);
  EXPECT_FALSE(node(0).finished || node(1).finished) << "C still works";
  node(2).group->Succeeded();
  ExpectAllFinish({0, 1, 2});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(node(i).verdict.has_value());
}

TEST_F(NodesInARun, AllStopAndNameTheMemberThatFailed) {
  Start(3);
  node(1).FailAndStop("rank 5 killed by SIGKILL");
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "B", 1, "rank 5 killed by SIGKILL");
  EXPECT_EQ(node(0).stops.size(), 1U);
  EXPECT_EQ(node(1).stops.size(), 0U) << "it stops by itself";
  EXPECT_EQ(node(2).stops.size(), 1U);
}

TEST_F(NodesInARun, AllStopAndNameTheCoordinatorThatFailed) {
  Start(3);
  node(0).FailAndStop("rank 2 exited with code 3");
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "A", 0, "rank 2 exited with code 3");
}

TEST_F(NodesInARun, ANodeThatHadSucceededIsNotifiedOfALaterFailure) {
  Start(2);
  node(0).group->Succeeded();
  RunFor(loop_, 50ms);
  node(1).FailAndStop("rank 5 failed");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 failed");
}

TEST_F(NodesInARun, NameTheEarlierFailureWhicheverIsReceivedFirst) {
  Start(3);
  RunFor(loop_, 3100ms);
  // B's rank died first; the failure of the coordinator's own rank, which lost its peer, is received first.
  const base::TimePoint now = Now();
  node(0).FailAndStop("rank 0: connection reset by peer", now - 10ms);
  node(2).FailAndStop("rank 9: connection reset by peer", now - 5ms);
  node(1).FailAndStop("rank 5 killed by SIGKILL", now - 3s);
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "B", 1, "rank 5 killed by SIGKILL");
}

TEST_F(NodesInARun, AMemberMayFindAfterTheStopThatItsOwnRankHadFailedBefore) {
  Start(2);
  node(1).obeys = false;
  RunFor(loop_, 3100ms);
  const base::TimePoint before = Now() - 3s;
  node(0).FailAndStop("rank 0: connection reset by peer");
  ASSERT_TRUE(RunUntil(loop_, [&] { return !node(1).stops.empty(); }));
  EXPECT_EQ(node(1).stops[0].host_name, "A") << "what is known so far";
  node(1).FailAndStop("rank 5 killed by SIGKILL", before);
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 killed by SIGKILL");
}

TEST_F(NodesInARun, TheNetworkDelayDoesNotBlameTheWrongNode) {
  options_.silence_limit = 8s;
  proxy_ = std::make_unique<LinkProxy>(loop_, port_);
  proxy_->to_coordinator.min_delay = proxy_->to_coordinator.max_delay = 500ms;
  proxy_->to_member.min_delay = proxy_->to_member.max_delay = 500ms;
  min_nodes_ = max_nodes_ = 2;
  Add(0);
  Add(1);
  ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(1); }));
  // Exchange heartbeats, so that the coordinator knows how long a message takes.
  RunFor(loop_, 5s);
  node(1).FailAndStop("rank 5 killed by SIGKILL");
  // Less than the half second that B's message takes.
  RunFor(loop_, 450ms);
  node(0).FailAndStop("rank 0: connection reset by peer");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 killed by SIGKILL");
}

TEST_F(NodesInARun, AMemberThatVanishesIsNamed) {
  options_.silence_limit = 60s;
  Start(3);
  const base::TimePoint began = Now();
  nodes_[1]->group.reset();
  ExpectAllFinish({0, 2});
  EXPECT_LT(Now() - began, 20s) << "no silence has to be waited for";
  ExpectVerdict({0, 2}, "B", 1, "the launcher of host B (127.0.0.1) ended without a word");
}

TEST_F(NodesInARun, ACoordinatorThatVanishesIsNamedByAll) {
  Start(3);
  nodes_[0]->group.reset();
  ExpectAllFinish({1, 2});
  ExpectVerdict({1, 2}, "A", 0, "the launcher of host A (127.0.0.1) ended without a word");
}

TEST_F(NodesInARun, ALauncherThatVanishesIsNamedThoughItsPeersRanksFailedFirst) {
  options_.vanish_head_start = 10s;
  Start(2);
  RunFor(loop_, 500ms);
  node(1).obeys = false;  // it is already dying
  node(0).FailAndStop("rank 0: connection reset by peer");
  RunFor(loop_, 10ms);
  nodes_[1]->group.reset();
  ExpectAllFinish({0});
  ExpectVerdict({0}, "B", 1, "ended without a word");
}

TEST_F(NodesInARun, ACoordinatorThatVanishesIsNamedThoughOwnRanksFailedFirst) {
  options_.vanish_head_start = 10s;
  Start(2);
  RunFor(loop_, 500ms);
  node(1).FailAndStop("rank 4: connection reset by peer");
  nodes_[0]->group.reset();
  ExpectAllFinish({1});
  ExpectVerdict({1}, "A", 0, "ended without a word");
}

TEST_F(NodesInARun, ANodeThatVanishesAfterItsRanksHaveSucceededIsNoFailure) {
  Start(2);
  node(1).group->Succeeded();
  RunFor(loop_, 50ms);
  nodes_[1]->group.reset();
  RunFor(loop_, 50ms);
  EXPECT_TRUE(node(0).stops.empty());
  node(0).group->Succeeded();
  ExpectAllFinish({0});
  EXPECT_FALSE(node(0).verdict.has_value());
  EXPECT_TRUE(node(0).Logged("its ranks had all ended well")) << node(0).AllLogged();
}

struct Cut {
  const char* name;
  bool to_coordinator;
  bool to_member;
};

class NodesWithABadLink : public NodesInARun, public ::testing::WithParamInterface<Cut> {};

TEST_P(NodesWithABadLink, NameTheSameNodeAndTheLinkOnBothSidesInTime) {
  options_.silence_limit = 1s;
  Start(3, /*with_proxy=*/true);
  RunFor(loop_, 500ms);
  const base::TimePoint cut = Now();
  proxy_->to_coordinator.blackholed = GetParam().to_coordinator;
  proxy_->to_member.blackholed = GetParam().to_member;
  ASSERT_TRUE(RunUntil(loop_, [&] { return !node(0).stops.empty() && !node(1).stops.empty(); }));
  // The limit plus a quarter on an idle machine.
  EXPECT_LT(Now() - cut, 20s);
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "B", 1, "the link between host A and host B is down");
}

INSTANTIATE_TEST_SUITE_P(Link, NodesWithABadLink,
                         ::testing::Values(Cut{"BothWays", true, true}, Cut{"TowardsTheCoordinator", true, false},
                                           Cut{"TowardsTheMember", false, true}),
                         [](const auto& cut) { return std::string(cut.param.name); });

TEST_F(NodesInARun, ALinkThatFailedBeforeARankOfItIsNamedOnBothSides) {
  options_.silence_limit = 1s;
  Start(2, /*with_proxy=*/true);
  RunFor(loop_, 300ms);
  proxy_->to_coordinator.blackholed = proxy_->to_member.blackholed = true;
  RunFor(loop_, 600ms);
  node(0).FailAndStop("rank 0: timed out");
  node(1).FailAndStop("rank 4: timed out");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "the link between host A and host B is down");
}

TEST_F(NodesInARun, ASlowLinkIsNoFailure) {
  options_.silence_limit = 6s;
  Start(2, /*with_proxy=*/true);
  proxy_->to_coordinator.max_delay = 1200ms;
  proxy_->to_member.max_delay = 1200ms;
  // Longer than the limit; before that no peer can be declared lost.
  RunFor(loop_, 8s);
  EXPECT_TRUE(node(0).stops.empty() && node(1).stops.empty());
  node(0).group->Succeeded();
  node(1).group->Succeeded();
  ExpectAllFinish({0, 1});
}

TEST_F(NodesInARun, AStallOfThisProcessAccusesNobody) {
  options_.silence_limit = 1s;
  Start(2);
  // Suspends everything, as with a closed laptop lid; the peers run on the same loop.
  std::this_thread::sleep_for(2500ms);
  RunFor(loop_, 1500ms);
  EXPECT_TRUE(node(0).stops.empty() && node(1).stops.empty());
}

TEST_F(NodesInARun, ANodeThatDoesNotStopHoldsNobodyForLongerThanTheTimeout) {
  options_.stop_timeout = 500ms;
  Start(3);
  node(1).obeys = false;
  node(2).FailAndStop("rank 9 failed");
  ExpectAllFinish({0, 2});
  ExpectVerdict({0, 2}, "C", 2, "rank 9 failed");
  EXPECT_TRUE(node(0).Logged("host B (127.0.0.1) did not say within 0.5 s that its ranks are gone"))
      << node(0).AllLogged();
  // It still receives the final message, and ends by its own timeout.
  ExpectAllFinish({1});
  ExpectVerdict({1}, "C", 2, "rank 9 failed");
}

TEST_F(NodesInARun, RestartOnAllNodesWithAFreshPort) {
  Start(2);
  node(0).restarts_left = 1;
  node(0).restart_delay = 50ms;
  node(1).group->SetProgress(17);
  RunFor(loop_, 1200ms);
  node(0).FailAndStop("rank 0 failed");
  ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(2); }));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(node(i).starts[1].attempt, 1);
    EXPECT_EQ(node(i).starts[1].master_port, 40002);
    ASSERT_EQ(node(i).restartings.size(), 1U);
    EXPECT_EQ(node(i).restartings[0].summary, "rank 0 failed");
    EXPECT_EQ(node(i).finish_count, 0);
  }
  ASSERT_EQ(node(0).restart_requests.size(), 1U);
  EXPECT_EQ(node(0).restart_requests[0].best_step, 17U) << "the progress of every host counts";
  EXPECT_TRUE(node(1).restart_requests.empty()) << "the coordinator decides";
  node(1).FailAndStop("rank 5 failed");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 failed");
  EXPECT_EQ(node(0).restart_requests[1].best_step, 0U) << "of that attempt";
}

TEST_F(NodesInARun, StartAgainWithFewerWhenEnoughAreLeft) {
  Start(3, false, /*min_nodes=*/2);
  node(0).restarts_left = 1;
  nodes_[1]->group.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return node(0).starts.size() == 2 && node(2).starts.size() == 2; }));
  EXPECT_EQ(node(2).starts[1].group_rank, 1);
  EXPECT_EQ(node(2).starts[1].world_size, 8);
  node(0).group->Succeeded();
  node(2).group->Succeeded();
  ExpectAllFinish({0, 2});
}

TEST_F(NodesInARun, WaitForALostNodeToComeBack) {
  options_.last_call_timeout = 20s;
  Start(2);
  node(0).restarts_left = 1;
  nodes_[1]->group.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return node(0).Logged("for a lost host to come back"); })) << node(0).AllLogged();
  Add(1);
  ASSERT_TRUE(RunUntil(loop_, [&] { return node(0).starts.size() == 2 && node(1).starts.size() == 1; }));
  EXPECT_EQ(node(1).starts[0].attempt, 1);
  node(0).group->Succeeded();
  node(1).group->Succeeded();
  ExpectAllFinish({0, 1});
}

TEST_F(NodesInARun, EndWhenALostNodeDoesNotComeBack) {
  options_.last_call_timeout = 300ms;
  Start(2);
  node(0).restarts_left = 1;
  nodes_[1]->group.reset();
  ExpectAllFinish({0});
  ExpectVerdict({0}, "B", 1, "no restart: host B (127.0.0.1) did not come back within 0.3 s");
  EXPECT_THAT(node(0).verdict->summary, HasSubstr("missing: node rank 1"));
}

TEST_F(NodesInARun, AStopByTheUserEndsAllWithoutARestart) {
  Start(2);
  node(0).restarts_left = 5;
  NodeFailure stop;
  stop.summary = "stopped by SIGTERM";
  stop.by_request = true;
  node(1).group->Failed(stop);
  node(1).group->Stopped();
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "stopped by SIGTERM");
  EXPECT_TRUE(node(0).restart_requests.empty());
}

TEST_F(NodesInARun, AStopByTheUserBetweenTwoAttemptsEndsAll) {
  for (const std::size_t stopped : {0U, 1U}) {
    nodes_.clear();
    Start(2);
    node(0).restarts_left = 5;
    node(0).restart_delay = 20s;
    node(0).FailAndStop("rank 0 failed");
    ASSERT_TRUE(RunUntil(loop_, [&] { return !node(0).restartings.empty() && !node(1).restartings.empty(); }));
    NodeFailure stop;
    stop.summary = "stopped by SIGTERM";
    stop.by_request = true;
    node(stopped).group->Failed(stop);
    ExpectAllFinish({0, 1});
    ExpectVerdict({0, 1}, stopped == 0 ? "A" : "B", static_cast<int>(stopped), "stopped by SIGTERM");
  }
}

TEST_F(NodesInARun, ACoordinatorThatIsLostBetweenTwoAttemptsIsNamed) {
  Start(2);
  node(0).restarts_left = 1;
  node(0).restart_delay = 20s;
  node(0).FailAndStop("rank 0 failed");
  ASSERT_TRUE(RunUntil(loop_, [&] { return !node(1).restartings.empty(); }));
  nodes_[0]->group.reset();
  ExpectAllFinish({1});
  ExpectVerdict({1}, "A", 0, "ended without a word");
}

TEST_F(NodesInARun, AFreshPortThatCannotBeHadEndsTheRun) {
  Start(2);
  node(0).restarts_left = 1;
  node(0).port_error = "all ports are taken";
  node(1).FailAndStop("rank 5 failed");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 failed; no restart: no port for the ranks on host A (127.0.0.1)");
}

TEST_F(NodesInARun, AnIntermediaryThatHangsUpIsALauncherThatVanished) {
  Start(2, /*with_proxy=*/true);
  proxy_->HangUp();
  ExpectAllFinish({0, 1});
  ExpectVerdict({0}, "B", 1, "ended without a word");
}

TEST_F(NodesInARun, TwentyRestartsLeaveNothingBehind) {
  Start(3);
  node(0).restarts_left = 20;
  for (std::size_t attempt = 0; attempt < 20; ++attempt) {
    const std::size_t failing = attempt % 3;
    node(failing).FailAndStop("rank failed");
    ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(attempt + 2); })) << attempt;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(node(i).restartings.back().group_rank, static_cast<int>(failing));
  }
  for (std::size_t i = 0; i < 3; ++i) node(i).group->Succeeded();
  ExpectAllFinish({0, 1, 2});
}

}  // namespace
}  // namespace fulldeck::nodes
