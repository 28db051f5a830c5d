// How hosts fail, restart and end together: several groups on one loop, with a proxy for the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "nodes/host_group.h"
#include "test_hosts.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::FreePort;
using ::fulldeck::testing::LinkProxy;
using ::fulldeck::testing::RunFor;
using ::fulldeck::testing::RunUntil;
using ::fulldeck::testing::TestHost;
using ::testing::HasSubstr;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

class HostsInARun : public ::testing::Test {
 protected:
  // Hosts A (coordinator), B, C …; B reaches A through proxy_ where `with_proxy`.
  void Start(int hosts, bool with_proxy = false, int min_hosts = 0) {
    min_hosts_ = min_hosts == 0 ? hosts : min_hosts;
    max_hosts_ = hosts;
    if (with_proxy) proxy_ = std::make_unique<LinkProxy>(loop_, port_);
    for (int i = 0; i < hosts; ++i) Add(i);
    ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(1); }));
  }
  void Add(int index) {
    HostGroupOptions options = options_;
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = index == 1 && proxy_ ? proxy_->port() : port_;
    options.node_rank = index;
    options.min_hosts = min_hosts_;
    options.max_hosts = max_hosts_;
    options.local_ranks = 4;
    options.token = "secret";
    options.host_name = std::string(1, static_cast<char>('A' + index));
    auto host = std::make_unique<TestHost>(loop_, options);
    ASSERT_TRUE(host->group->Join().ok());
    if (static_cast<std::size_t>(index) < hosts_.size()) {
      hosts_[static_cast<std::size_t>(index)] = std::move(host);
    } else {
      hosts_.push_back(std::move(host));
    }
  }
  TestHost& host(std::size_t index) { return *hosts_[index]; }
  bool AllStarted(std::size_t times) const {
    return std::all_of(hosts_.begin(), hosts_.end(), [&](const auto& held) { return held->starts.size() >= times; });
  }
  // Until all of these have finished; each must have done so once.
  void ExpectAllFinish(const std::vector<std::size_t>& which, base::Duration patience = 30s) {
    EXPECT_TRUE(RunUntil(
        loop_, [&] { return std::all_of(which.begin(), which.end(), [&](std::size_t i) { return host(i).finished; }); },
        patience));
    for (const std::size_t i : which) EXPECT_EQ(host(i).endings, 1) << i;
  }
  void ExpectVerdict(const std::vector<std::size_t>& which, const std::string& host_name, int group_rank,
                     const std::string& summary) {
    for (const std::size_t i : which) {
      ASSERT_TRUE(host(i).verdict.has_value()) << i;
      EXPECT_EQ(host(i).verdict->host_name, host_name) << i << ": " << host(i).verdict->summary;
      EXPECT_EQ(host(i).verdict->group_rank, group_rank) << i;
      EXPECT_THAT(host(i).verdict->summary, HasSubstr(summary)) << i;
    }
  }

  base::EventLoop loop_;
  int port_ = FreePort();
  HostGroupOptions options_;
  int min_hosts_ = 1;
  int max_hosts_ = 1;
  std::unique_ptr<LinkProxy> proxy_;
  std::vector<std::unique_ptr<TestHost>> hosts_;
};

TEST_F(HostsInARun, EndWellWhenAllSucceeded) {
  Start(3);
  host(1).group->Succeeded();
  host(0).group->Succeeded();
  RunFor(loop_, 100ms);
  EXPECT_FALSE(host(0).finished || host(1).finished) << "C still works";
  host(2).group->Succeeded();
  ExpectAllFinish({0, 1, 2});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(host(i).verdict.has_value());
}

TEST_F(HostsInARun, AllStopAndNameTheMemberThatFailed) {
  Start(3);
  host(1).FailAndStop("rank 5 killed by SIGKILL");
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "B", 1, "rank 5 killed by SIGKILL");
  EXPECT_EQ(host(0).stops.size(), 1U);
  EXPECT_EQ(host(1).stops.size(), 0U) << "it stops by itself";
  EXPECT_EQ(host(2).stops.size(), 1U);
}

TEST_F(HostsInARun, AllStopAndNameTheCoordinatorThatFailed) {
  Start(3);
  host(0).FailAndStop("rank 2 exited with code 3");
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "A", 0, "rank 2 exited with code 3");
}

TEST_F(HostsInARun, AHostThatHadSucceededIsToldOfALaterFailure) {
  Start(2);
  host(0).group->Succeeded();
  RunFor(loop_, 50ms);
  host(1).FailAndStop("rank 5 failed");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 failed");
}

TEST_F(HostsInARun, NameTheEarlierFailureWhicheverIsHeardFirst) {
  Start(3);
  RunFor(loop_, 3100ms);
  // B's rank died first; the coordinator's own rank, which lost its peer, is heard of first.
  const base::TimePoint now = Now();
  host(0).FailAndStop("rank 0: connection reset by peer", now - 10ms);
  host(2).FailAndStop("rank 9: connection reset by peer", now - 5ms);
  host(1).FailAndStop("rank 5 killed by SIGKILL", now - 3s);
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "B", 1, "rank 5 killed by SIGKILL");
}

TEST_F(HostsInARun, AMemberMayFindAfterTheStopThatItsOwnRankHadFailedBefore) {
  Start(2);
  host(1).obeys = false;
  RunFor(loop_, 3100ms);
  const base::TimePoint before = Now() - 3s;
  host(0).FailAndStop("rank 0: connection reset by peer");
  ASSERT_TRUE(RunUntil(loop_, [&] { return !host(1).stops.empty(); }));
  EXPECT_EQ(host(1).stops[0].host_name, "A") << "what is known so far";
  host(1).FailAndStop("rank 5 killed by SIGKILL", before);
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 killed by SIGKILL");
}

TEST_F(HostsInARun, TheTimeOnTheWayDoesNotBlameTheWrongHost) {
  options_.silence_limit = 8s;
  proxy_ = std::make_unique<LinkProxy>(loop_, port_);
  proxy_->to_coordinator.least_delay = proxy_->to_coordinator.most_delay = 500ms;
  proxy_->to_member.least_delay = proxy_->to_member.most_delay = 500ms;
  min_hosts_ = max_hosts_ = 2;
  Add(0);
  Add(1);
  ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(1); }));
  // Beats go and come, so that the coordinator knows how long a message takes.
  RunFor(loop_, 5s);
  host(1).FailAndStop("rank 5 killed by SIGKILL");
  // Less than the half second that B's message takes.
  RunFor(loop_, 450ms);
  host(0).FailAndStop("rank 0: connection reset by peer");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 killed by SIGKILL");
}

TEST_F(HostsInARun, AMemberThatVanishesIsNamed) {
  options_.silence_limit = 60s;
  Start(3);
  const base::TimePoint began = Now();
  hosts_[1]->group.reset();
  ExpectAllFinish({0, 2});
  EXPECT_LT(Now() - began, 20s) << "no silence has to be waited for";
  ExpectVerdict({0, 2}, "B", 1, "the launcher of host B (127.0.0.1) ended without a word");
}

TEST_F(HostsInARun, ACoordinatorThatVanishesIsNamedByAll) {
  Start(3);
  hosts_[0]->group.reset();
  ExpectAllFinish({1, 2});
  ExpectVerdict({1, 2}, "A", 0, "the launcher of host A (127.0.0.1) ended without a word");
}

TEST_F(HostsInARun, ALauncherThatVanishesIsNamedThoughItsPeersRanksFailedFirst) {
  options_.vanish_head_start = 10s;
  Start(2);
  RunFor(loop_, 500ms);
  host(1).obeys = false;  // it is dying already
  host(0).FailAndStop("rank 0: connection reset by peer");
  RunFor(loop_, 10ms);
  hosts_[1]->group.reset();
  ExpectAllFinish({0});
  ExpectVerdict({0}, "B", 1, "ended without a word");
}

TEST_F(HostsInARun, ACoordinatorThatVanishesIsNamedThoughOwnRanksFailedFirst) {
  options_.vanish_head_start = 10s;
  Start(2);
  RunFor(loop_, 500ms);
  host(1).FailAndStop("rank 4: connection reset by peer");
  hosts_[0]->group.reset();
  ExpectAllFinish({1});
  ExpectVerdict({1}, "A", 0, "ended without a word");
}

TEST_F(HostsInARun, AHostThatVanishesAfterItsRanksHaveSucceededIsNoFailure) {
  Start(2);
  host(1).group->Succeeded();
  RunFor(loop_, 50ms);
  hosts_[1]->group.reset();
  RunFor(loop_, 50ms);
  EXPECT_TRUE(host(0).stops.empty());
  host(0).group->Succeeded();
  ExpectAllFinish({0});
  EXPECT_FALSE(host(0).verdict.has_value());
  EXPECT_TRUE(host(0).Said("its ranks had all ended well")) << host(0).AllSaid();
}

struct Cut {
  const char* name;
  bool to_coordinator;
  bool to_member;
};

class HostsWithABadLink : public HostsInARun, public ::testing::WithParamInterface<Cut> {};

TEST_P(HostsWithABadLink, NameTheSameHostAndTheLinkOnBothSidesInTime) {
  options_.silence_limit = 1s;
  Start(3, /*with_proxy=*/true);
  RunFor(loop_, 500ms);
  const base::TimePoint cut = Now();
  proxy_->to_coordinator.deaf = GetParam().to_coordinator;
  proxy_->to_member.deaf = GetParam().to_member;
  ASSERT_TRUE(RunUntil(loop_, [&] { return !host(0).stops.empty() && !host(1).stops.empty(); }));
  // The limit and a quarter on an idle machine.
  EXPECT_LT(Now() - cut, 20s);
  ExpectAllFinish({0, 1, 2});
  ExpectVerdict({0, 1, 2}, "B", 1, "the link between host A and host B is down");
}

INSTANTIATE_TEST_SUITE_P(Link, HostsWithABadLink,
                         ::testing::Values(Cut{"BothWays", true, true}, Cut{"TowardsTheCoordinator", true, false},
                                           Cut{"TowardsTheMember", false, true}),
                         [](const auto& cut) { return std::string(cut.param.name); });

TEST_F(HostsInARun, ALinkThatFailedBeforeARankOfItIsNamedOnBothSides) {
  options_.silence_limit = 1s;
  Start(2, /*with_proxy=*/true);
  RunFor(loop_, 300ms);
  proxy_->to_coordinator.deaf = proxy_->to_member.deaf = true;
  RunFor(loop_, 600ms);
  host(0).FailAndStop("rank 0: timed out");
  host(1).FailAndStop("rank 4: timed out");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "the link between host A and host B is down");
}

TEST_F(HostsInARun, ASlowLinkIsNoFailure) {
  options_.silence_limit = 6s;
  Start(2, /*with_proxy=*/true);
  proxy_->to_coordinator.most_delay = 1200ms;
  proxy_->to_member.most_delay = 1200ms;
  // Longer than the limit, or nobody could be given up yet.
  RunFor(loop_, 8s);
  EXPECT_TRUE(host(0).stops.empty() && host(1).stops.empty());
  host(0).group->Succeeded();
  host(1).group->Succeeded();
  ExpectAllFinish({0, 1});
}

TEST_F(HostsInARun, AStallOfThisProcessAccusesNobody) {
  options_.silence_limit = 1s;
  Start(2);
  // Everything stands still, as with a closed lid; the peers stand on the same loop.
  std::this_thread::sleep_for(2500ms);
  RunFor(loop_, 1500ms);
  EXPECT_TRUE(host(0).stops.empty() && host(1).stops.empty());
}

TEST_F(HostsInARun, AHostThatDoesNotStopHoldsNobodyForLongerThanThePatience) {
  options_.stop_patience = 500ms;
  Start(3);
  host(1).obeys = false;
  host(2).FailAndStop("rank 9 failed");
  ExpectAllFinish({0, 2});
  ExpectVerdict({0, 2}, "C", 2, "rank 9 failed");
  EXPECT_TRUE(host(0).Said("host B (127.0.0.1) did not say within 0.5 s that its ranks are gone")) << host(0).AllSaid();
  // It is told the last word all the same, and ends by its own patience.
  ExpectAllFinish({1});
  ExpectVerdict({1}, "C", 2, "rank 9 failed");
}

TEST_F(HostsInARun, StartAgainOnAllHostsWithAFreshPort) {
  Start(2);
  host(0).restarts_left = 1;
  host(0).restart_delay = 50ms;
  host(1).group->SetProgress(17);
  RunFor(loop_, 1200ms);
  host(0).FailAndStop("rank 0 failed");
  ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(2); }));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(host(i).starts[1].attempt, 1);
    EXPECT_EQ(host(i).starts[1].master_port, 40002);
    ASSERT_EQ(host(i).restartings.size(), 1U);
    EXPECT_EQ(host(i).restartings[0].summary, "rank 0 failed");
    EXPECT_EQ(host(i).endings, 0);
  }
  ASSERT_EQ(host(0).asked.size(), 1U);
  EXPECT_EQ(host(0).asked[0].best_step, 17U) << "the progress of every host counts";
  EXPECT_TRUE(host(1).asked.empty()) << "the coordinator decides";
  host(1).FailAndStop("rank 5 failed");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 failed");
  EXPECT_EQ(host(0).asked[1].best_step, 0U) << "of that attempt";
}

TEST_F(HostsInARun, StartAgainWithFewerWhenEnoughAreLeft) {
  Start(3, false, /*min_hosts=*/2);
  host(0).restarts_left = 1;
  hosts_[1]->group.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return host(0).starts.size() == 2 && host(2).starts.size() == 2; }));
  EXPECT_EQ(host(2).starts[1].group_rank, 1);
  EXPECT_EQ(host(2).starts[1].world_size, 8);
  host(0).group->Succeeded();
  host(2).group->Succeeded();
  ExpectAllFinish({0, 2});
}

TEST_F(HostsInARun, WaitForALostHostToComeBack) {
  options_.last_call_timeout = 20s;
  Start(2);
  host(0).restarts_left = 1;
  hosts_[1]->group.reset();
  ASSERT_TRUE(RunUntil(loop_, [&] { return host(0).Said("for a lost host to come back"); })) << host(0).AllSaid();
  Add(1);
  ASSERT_TRUE(RunUntil(loop_, [&] { return host(0).starts.size() == 2 && host(1).starts.size() == 1; }));
  EXPECT_EQ(host(1).starts[0].attempt, 1);
  host(0).group->Succeeded();
  host(1).group->Succeeded();
  ExpectAllFinish({0, 1});
}

TEST_F(HostsInARun, EndWhenALostHostDoesNotComeBack) {
  options_.last_call_timeout = 300ms;
  Start(2);
  host(0).restarts_left = 1;
  hosts_[1]->group.reset();
  ExpectAllFinish({0});
  ExpectVerdict({0}, "B", 1, "no restart: host B (127.0.0.1) did not come back within 0.3 s");
  EXPECT_THAT(host(0).verdict->summary, HasSubstr("missing: node rank 1"));
}

TEST_F(HostsInARun, AStopByTheUserEndsAllWithoutAskingForARestart) {
  Start(2);
  host(0).restarts_left = 5;
  HostFailure stop;
  stop.summary = "stopped by SIGTERM";
  stop.by_request = true;
  host(1).group->Failed(stop);
  host(1).group->Stopped();
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "stopped by SIGTERM");
  EXPECT_TRUE(host(0).asked.empty());
}

TEST_F(HostsInARun, AStopByTheUserBetweenTwoAttemptsEndsAll) {
  for (const std::size_t stopped : {0U, 1U}) {
    hosts_.clear();
    Start(2);
    host(0).restarts_left = 5;
    host(0).restart_delay = 20s;
    host(0).FailAndStop("rank 0 failed");
    ASSERT_TRUE(RunUntil(loop_, [&] { return !host(0).restartings.empty() && !host(1).restartings.empty(); }));
    HostFailure stop;
    stop.summary = "stopped by SIGTERM";
    stop.by_request = true;
    host(stopped).group->Failed(stop);
    ExpectAllFinish({0, 1});
    ExpectVerdict({0, 1}, stopped == 0 ? "A" : "B", static_cast<int>(stopped), "stopped by SIGTERM");
  }
}

TEST_F(HostsInARun, ACoordinatorThatIsLostBetweenTwoAttemptsIsNamed) {
  Start(2);
  host(0).restarts_left = 1;
  host(0).restart_delay = 20s;
  host(0).FailAndStop("rank 0 failed");
  ASSERT_TRUE(RunUntil(loop_, [&] { return !host(1).restartings.empty(); }));
  hosts_[0]->group.reset();
  ExpectAllFinish({1});
  ExpectVerdict({1}, "A", 0, "ended without a word");
}

TEST_F(HostsInARun, AFreshPortThatCannotBeHadEndsTheRun) {
  Start(2);
  host(0).restarts_left = 1;
  host(0).port_trouble = "all ports are taken";
  host(1).FailAndStop("rank 5 failed");
  ExpectAllFinish({0, 1});
  ExpectVerdict({0, 1}, "B", 1, "rank 5 failed; no restart: no port for the ranks on host A (127.0.0.1)");
}

TEST_F(HostsInARun, AnIntermediaryThatHangsUpIsALauncherThatVanished) {
  Start(2, /*with_proxy=*/true);
  proxy_->HangUp();
  ExpectAllFinish({0, 1});
  ExpectVerdict({0}, "B", 1, "ended without a word");
}

TEST_F(HostsInARun, TwentyRestartsLeaveNothingBehind) {
  Start(3);
  host(0).restarts_left = 20;
  for (std::size_t attempt = 0; attempt < 20; ++attempt) {
    const std::size_t failing = attempt % 3;
    host(failing).FailAndStop("rank failed");
    ASSERT_TRUE(RunUntil(loop_, [&] { return AllStarted(attempt + 2); })) << attempt;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(host(i).restartings.back().group_rank, static_cast<int>(failing));
  }
  for (std::size_t i = 0; i < 3; ++i) host(i).group->Succeeded();
  ExpectAllFinish({0, 1, 2});
}

}  // namespace
}  // namespace fulldeck::nodes
