#include "collectives/peer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <thread>

#include "collectives/rendezvous/rendezvous_testing.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::MemberProcess;
using ::fulldeck::testing::OpenDescriptors;
using ::fulldeck::testing::PollUntilTrue;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A process that is connected to this one and does nothing until it is killed or released.
class Idler {
 public:
  Idler()
      : ends_(MakeEnds()), process_([&]() -> std::string {
          ends_[0].Reset();
          char byte = 0;
          // Exits when the test closes its end.
          while (recv(ends_[1].get(), &byte, 1, 0) > 0) {
          }
          return "left";
        }) {
    ends_[1].Reset();
  }
  MemberProcess& process() { return process_; }
  base::UniqueFd TakeConnection() { return std::move(ends_[0]); }
  PeerWatch::Peer AsPeer(int rank) { return {rank, process_.pid(), TakeConnection(), nullptr, false}; }

 private:
  static std::array<base::UniqueFd, 2> MakeEnds() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
  }
  std::array<base::UniqueFd, 2> ends_;
  MemberProcess process_;
};

class PeerWatchBy : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ways, PeerWatchBy, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Pidfd" : "Connection"; });

PeerWatch WatchOf(const std::vector<Idler*>& idlers, bool use_pidfd) {
  std::vector<PeerWatch::Peer> peers;
  int rank = 1;
  for (Idler* idler : idlers) {
    peers.push_back(idler->AsPeer(rank++));
    // An idler exits when its connection is closed: without pidfds, the watch keeps it open.
    peers.back().keep_connection = true;
  }
  return PeerWatch(std::move(peers), use_pidfd);
}

TEST_P(PeerWatchBy, NamesWhoWasKilledInOrder) {
  Idler first;
  Idler second;
  Idler third;
  const PeerWatch watch = WatchOf({&first, &second, &third}, GetParam());
  EXPECT_THAT(watch.Dead(), IsEmpty());
  third.process().Signal(SIGKILL);
  EXPECT_TRUE(PollUntilTrue([&] { return watch.Dead() == std::vector{3}; }));
  first.process().Signal(SIGKILL);
  EXPECT_TRUE(PollUntilTrue([&] { return watch.Dead() == std::vector{1, 3}; }));
  EXPECT_THAT(watch.Describe(3), EndsWith(", gone"));
  EXPECT_THAT(watch.Describe(2), EndsWith(", running"));
}

TEST_P(PeerWatchBy, AStoppedPeerIsNotDeadButDescribed) {
  Idler idler;
  const PeerWatch watch = WatchOf({&idler}, GetParam());
  idler.process().Signal(SIGSTOP);
  EXPECT_TRUE(PollUntilTrue([&] {
    return watch.Describe(1) == "pid " + std::to_string(idler.process().pid()) + ", stopped (SIGSTOP)";
  })) << watch.Describe(1);
  EXPECT_THAT(watch.Dead(), IsEmpty());
  idler.process().Signal(SIGCONT);
  EXPECT_TRUE(PollUntilTrue([&] { return watch.Describe(1).ends_with(", running"); })) << watch.Describe(1);
  EXPECT_THAT(watch.Dead(), IsEmpty());
}

TEST_P(PeerWatchBy, WhoeverWasDeadBeforeIsDeadAtOnce) {
  PeerWatch::Peer peer;
  {
    Idler idler;
    peer = idler.AsPeer(4);
    idler.process().Signal(SIGKILL);
  }
  // Reaped: the pid is free or reused.
  std::vector<PeerWatch::Peer> peers;
  peers.push_back(std::move(peer));
  const PeerWatch watch(std::move(peers), GetParam());
  EXPECT_THAT(watch.Dead(), ElementsAre(4));
  EXPECT_THAT(watch.Describe(4), EndsWith(", gone"));
}

TEST_P(PeerWatchBy, AThreadOfThisProcessIsNeverDead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  std::vector<PeerWatch::Peer> peers;
  peers.push_back({0, getpid(), base::UniqueFd(ends[0]), nullptr, false});
  const PeerWatch watch(std::move(peers), GetParam());
  close(ends[1]);
  EXPECT_THAT(watch.Dead(), IsEmpty());
  EXPECT_EQ(watch.Describe(0), "pid " + std::to_string(getpid()) + ", running");
}

TEST(PeerWatch, OnlyTheEndOfAConnectionMatters) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  base::UniqueFd peer_end(ends[1]);
  std::vector<PeerWatch::Peer> peers;
  peers.push_back({7, 0, base::UniqueFd(ends[0]), nullptr, false});
  PeerWatch watch(std::move(peers));
  ASSERT_EQ(send(peer_end.get(), "data", 4, MSG_NOSIGNAL), 4);
  EXPECT_THAT(watch.Dead(), IsEmpty());
  EXPECT_EQ(watch.Describe(7), "a process of another pid namespace");
  const PeerWatch moved = std::move(watch);
  peer_end.Reset();
  EXPECT_THAT(moved.Dead(), ElementsAre(7));
  EXPECT_EQ(moved.Describe(7), "a process of another pid namespace, gone");
  EXPECT_EQ(moved.Describe(8), "no member of this group");
}

TEST(PeerWatch, ManyGroupsShareOnePidfdAndLetItGo) {
  const int before = OpenDescriptors();
  {
    Idler idler;
    const int with_idler = OpenDescriptors();
    std::vector<PeerWatch> watches;
    base::UniqueFd connection = idler.TakeConnection();
    for (int i = 0; i < 100; ++i) {
      std::vector<PeerWatch::Peer> peers;
      peers.push_back(
          {1, idler.process().pid(), base::UniqueFd(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0)), nullptr, false});
      watches.emplace_back(std::move(peers));
    }
    EXPECT_EQ(OpenDescriptors(), with_idler + 1);
    for (const PeerWatch& watch : watches) EXPECT_THAT(watch.Dead(), IsEmpty());
    idler.process().Signal(SIGKILL);
    for (const PeerWatch& watch : watches) {
      EXPECT_TRUE(PollUntilTrue([&] { return watch.Dead() == std::vector{1}; }));
    }
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(PeerWatch, IsCalledByManyThreadsAtOnce) {
  Idler idler;
  const PeerWatch watch = WatchOf({&idler}, true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(PollUntilTrue([&] { return !watch.Dead().empty(); })); });
  }
  EXPECT_THAT(watch.Describe(1), HasSubstr("running"));
  idler.process().Signal(SIGKILL);
  for (std::thread& thread : threads) thread.join();
}

TEST(PeerWatch, DescribesProcessesThatAreInNoGroup) {
  EXPECT_THAT(DescribeProcess(getpid()), EndsWith(", running"));
  EXPECT_EQ(DescribeProcess(0), "a process of another pid namespace");
  pid_t pid = 0;
  {
    MemberProcess child([] { return std::string("done"); });
    pid = child.pid();
    EXPECT_EQ(child.Report(), "done");
    EXPECT_TRUE(PollUntilTrue([&] { return DescribeProcess(pid).ends_with(", ended (a zombie)"); }));
  }
  EXPECT_EQ(DescribeProcess(pid), "pid " + std::to_string(pid) + ", gone");
  EXPECT_EQ(WatchProcess(pid), nullptr);
  EXPECT_EQ(WatchProcess(0), nullptr);
  EXPECT_EQ(WatchProcess(-5), nullptr);
}

}  // namespace
}  // namespace fulldeck::collectives
