// Members that behave correctly: they succeed, or get a report of who is missing.
#include "collectives/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "collectives/rendezvous/rendezvous_testing.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::After;
using ::fulldeck::testing::MakeRequest;
using ::fulldeck::testing::MemberInProcess;
using ::fulldeck::testing::MemberProcess;
using ::fulldeck::testing::OpenDescriptors;
using ::fulldeck::testing::PollUntilTrue;
using ::fulldeck::testing::RendezvousAndReport;
using ::fulldeck::testing::RendezvousInThreads;
using ::fulldeck::testing::UniqueName;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<RendezvousRequest> RequestsOf(const std::string& name, int size, base::Duration timeout = 60s) {
  std::vector<RendezvousRequest> requests;
  for (int rank = 0; rank < size; ++rank) requests.push_back(MakeRequest(name, rank, size, timeout));
  return requests;
}

class RendezvousOf : public ::testing::TestWithParam<int> {};

TEST_P(RendezvousOf, ThreadsReachEachOthersMemory) {
  EXPECT_THAT(RendezvousInThreads(RequestsOf(UniqueName("threads"), GetParam())), Each("ok"));
}

TEST_P(RendezvousOf, ProcessesReachEachOthersMemory) {
  const std::string name = UniqueName("processes");
  std::vector<MemberProcess> members;
  for (int rank = GetParam() - 1; rank >= 0; --rank) {
    members.push_back(MemberInProcess([&] { return MakeRequest(name, rank, GetParam()); }));
  }
  for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
}

TEST_P(RendezvousOf, ProcessesSucceedWithoutPidfds) {
  const std::string name = UniqueName("connections");
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < GetParam(); ++rank) {
    members.push_back(MemberInProcess([&] {
      RendezvousRequest request = MakeRequest(name, rank, GetParam());
      request.use_pidfd = false;
      return request;
    }));
  }
  for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
}

INSTANTIATE_TEST_SUITE_P(Sizes, RendezvousOf, ::testing::Range(1, 10));

TEST(Rendezvous, SucceedsWithManyMembers) {
  EXPECT_THAT(RendezvousInThreads(RequestsOf(UniqueName("many"), 24)), Each("ok"));
}

TEST(Rendezvous, AloneNeedsNoSocketAndNoTime) {
  const int before = OpenDescriptors();
  RendezvousRequest request = MakeRequest(UniqueName("alone"), 0, 1);
  request.deadline = After(-1s);
  const RendezvousOutcome outcome = RunRendezvous(std::move(request));
  ASSERT_TRUE(outcome.rendezvous) << outcome.failure.text;
  EXPECT_EQ(outcome.rendezvous->segments.size(), 1U);
  EXPECT_TRUE(outcome.rendezvous->watch.Dead().empty());
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Rendezvous, ThreadsOfOneProcessShareOneMapping) {
  std::vector<RendezvousRequest> requests = RequestsOf(UniqueName("one mapping"), 2);
  std::vector<std::byte*> memory{requests[0].segment->data(), requests[1].segment->data()};
  std::array<RendezvousOutcome, 2> outcomes;
  std::thread other([&] { outcomes[1] = RunRendezvous(std::move(requests[1])); });
  outcomes[0] = RunRendezvous(std::move(requests[0]));
  other.join();
  ASSERT_TRUE(outcomes[0].rendezvous && outcomes[1].rendezvous);
  for (const RendezvousOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.rendezvous->segments[0]->data(), memory[0]);
    EXPECT_EQ(outcome.rendezvous->segments[1]->data(), memory[1]);
    EXPECT_EQ(outcome.rendezvous->control, outcomes[0].rendezvous->control);
  }
}

TEST(Rendezvous, WaitsForARankThatIsLate) {
  for (const int late : {0, 1, 2}) {
    const std::string name = UniqueName("late " + std::to_string(late));
    std::vector<MemberProcess> members;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != late) members.push_back(MemberInProcess([&] { return MakeRequest(name, rank, 3); }));
    }
    // The rendezvous cannot have ended by then.
    EXPECT_EQ(members[0].Report(300ms), "too late");
    members.push_back(MemberInProcess([&] { return MakeRequest(name, late, 3); }));
    for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
  }
}

TEST(Rendezvous, ReportsWhoDidNotCome) {
  const std::string name = UniqueName("missing");
  std::vector<RendezvousRequest> requests = RequestsOf(name, 6, 2s);
  requests.erase(requests.begin() + 3);
  requests.erase(requests.begin() + 1);
  const auto began = base::SteadyClock::Instance().Now();
  const std::vector<std::string> reports = RendezvousInThreads(std::move(requests));
  EXPECT_LT(base::SteadyClock::Instance().Now() - began, 20s);
  EXPECT_THAT(reports, Each(AllOf(StartsWith("timeout: "), HasSubstr("ranks 1 and 3 of 6 did not come"),
                                  HasSubstr(name), Not(HasSubstr("Nobody else")))));
}

TEST(Rendezvous, ReportsThatNobodyCameAtAll) {
  EXPECT_THAT(RendezvousAndReport(MakeRequest(UniqueName("nobody"), 2, 4, 300ms)),
              AllOf(StartsWith("timeout: "), HasSubstr("ranks 0, 1 and 3 of 4 did not come"),
                    HasSubstr("another network namespace"), HasSubstr("another name or key")));
}

TEST(Rendezvous, OtherNamesAndKeysDoNotMatch) {
  const std::string name = UniqueName("keys");
  std::vector<RendezvousRequest> requests = RequestsOf(name, 2, 500ms);
  requests[1].key = "another key";
  EXPECT_THAT(RendezvousInThreads(std::move(requests)),
              Each(AllOf(StartsWith("timeout: "), HasSubstr("Nobody else came"))));
  requests = RequestsOf(name, 2, 500ms);
  requests[1].name = name + "x";
  EXPECT_THAT(RendezvousInThreads(std::move(requests)),
              Each(AllOf(StartsWith("timeout: "), HasSubstr("Nobody else came"))));
}

TEST(Rendezvous, AnImpossibleRankIsAnError) {
  for (const auto& [rank, size] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0), std::pair(0, 257)}) {
    RendezvousRequest request = MakeRequest("impossible", 0, 1);
    request.rank = rank;
    request.size = size;
    EXPECT_EQ(RunRendezvous(std::move(request)).failure.code, FULLDECK_ERROR_ARGUMENT) << rank << " of " << size;
  }
}

TEST(Rendezvous, SeveralAtOnceInOneProcessDoNotMix) {
  constexpr int kRendezvousCount = 6;
  std::vector<RendezvousRequest> requests;
  for (int rendezvous = 0; rendezvous < kRendezvousCount; ++rendezvous) {
    for (RendezvousRequest& request : RequestsOf(UniqueName("at once " + std::to_string(rendezvous)), 3)) {
      requests.push_back(std::move(request));
    }
  }
  EXPECT_THAT(RendezvousInThreads(std::move(requests)), Each("ok"));
}

// Every member starts the next rendezvous of the same name as soon as the previous one returns.
TEST(Rendezvous, OneAfterAnotherWithTheSameNameDoNotMix) {
  constexpr int kRendezvousCount = 25;
  constexpr int kSize = 4;
  const std::string name = UniqueName("again");
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < kSize; ++rank) {
    members.push_back(MemberProcess([&]() -> std::string {
      for (std::uint32_t round = 0; round < kRendezvousCount; ++round) {
        RendezvousRequest request = MakeRequest(name, rank, kSize);
        request.info.node = static_cast<std::int32_t>(round);
        const RendezvousOutcome outcome = RunRendezvous(std::move(request));
        if (!outcome.rendezvous) return "round " + std::to_string(round) + ": " + outcome.failure.text;
        for (const MemberInfo& info : outcome.rendezvous->infos) {
          if (info.node != static_cast<std::int32_t>(round)) return "a member of another round";
        }
      }
      return "ok";
    }));
  }
  for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
}

TEST(Rendezvous, TheNextOneOfTheNameWorksAfterOneThatFailed) {
  const std::string name = UniqueName("after failure");
  std::vector<RendezvousRequest> requests = RequestsOf(name, 3, 300ms);
  requests.pop_back();
  EXPECT_THAT(RendezvousInThreads(std::move(requests)), Each(StartsWith("timeout: ")));
  EXPECT_THAT(RendezvousInThreads(RequestsOf(name, 3)), Each("ok"));
}

TEST(Rendezvous, LeavesNoDescriptorAndNoFileBehind) {
  // Ignores the folders and files of concurrently running tests.
  const auto files = [] {
    int count = 0;
    if (DIR* const folder = opendir("/dev/shm")) {
      while (const dirent* const entry = readdir(folder)) {
        const std::string_view name = entry->d_name;
        if (!name.starts_with("fulldeck-test-") && !name.starts_with(".fulldeck-doctor-")) ++count;
      }
      closedir(folder);
    }
    return count;
  };
  const std::string name = UniqueName("leak");
  EXPECT_THAT(RendezvousInThreads(RequestsOf(name, 2)), Each("ok"));
  const int descriptors_before = OpenDescriptors();
  const int files_before = files();
  for (int i = 0; i < 200; ++i) ASSERT_THAT(RendezvousInThreads(RequestsOf(name, 2)), Each("ok"));
  EXPECT_EQ(OpenDescriptors(), descriptors_before);
  EXPECT_LE(files(), files_before);
}

// Except for the pidfd of its peer, which all groups share, an established group keeps no descriptor open.
TEST(Rendezvous, EstablishedGroupsHoldOneDescriptorPerPeer) {
  constexpr int kGroups = 40;
  const std::string name = UniqueName("standing");
  const auto body = [&](int rank) -> std::string {
    std::vector<RendezvousOutcome> held;
    held.push_back(RunRendezvous(MakeRequest(name, rank, 2)));
    const int with_one = OpenDescriptors();
    for (int i = 1; i < kGroups; ++i) held.push_back(RunRendezvous(MakeRequest(name, rank, 2)));
    for (const RendezvousOutcome& outcome : held) {
      if (!outcome.rendezvous) return outcome.failure.text;
    }
    const int with_all = OpenDescriptors();
    return with_all == with_one ? "ok" : std::to_string(with_one) + " grew to " + std::to_string(with_all);
  };
  MemberProcess first([&] { return body(0); });
  MemberProcess second([&] { return body(1); });
  EXPECT_EQ(first.Report(), "ok");
  EXPECT_EQ(second.Report(), "ok");
}

TEST(Rendezvous, TwoNetworkNamespacesAreTwoNodes) {
  const std::string name = UniqueName("namespaces");
  MemberProcess inside([&]() -> std::string {
    if (unshare(CLONE_NEWNET) != 0) return std::string("cannot: ") + strerror(errno);
    return RendezvousAndReport(MakeRequest(name, 1, 2, 600ms));
  });
  const std::string outside = RendezvousAndReport(MakeRequest(name, 0, 2, 600ms));
  const std::string report = inside.Report();
  if (report.starts_with("cannot: ")) GTEST_SKIP() << "a network namespace needs root: " << report;
  EXPECT_THAT(report, AllOf(StartsWith("timeout: "), HasSubstr("rank 0 of 2 did not come")));
  EXPECT_THAT(outside, AllOf(StartsWith("timeout: "), HasSubstr("rank 1 of 2 did not come")));
}

// The child in a pid namespace is not visible to its sibling, but its connection is.
TEST(Rendezvous, MembersOfTwoPidNamespacesSucceedAndNoticeDeaths) {
  const std::string name = UniqueName("pid namespaces");
  const auto in_namespace = [&](int rank, const std::function<std::string()>& body) {
    return MemberProcess([&, rank]() -> std::string {
      if (unshare(CLONE_NEWPID) != 0) return std::string("cannot: ") + strerror(errno);
      MemberProcess first(body);
      return first.Report();
    });
  };
  MemberProcess watcher = in_namespace(0, [&]() -> std::string {
    const RendezvousOutcome outcome = RunRendezvous(MakeRequest(name, 0, 2));
    if (!outcome.rendezvous) return outcome.failure.text;
    const PeerWatch& watch = outcome.rendezvous->watch;
    if (watch.Describe(1) != "a process of another pid namespace") return watch.Describe(1);
    if (!watch.Dead().empty()) return "dead too early";
    *reinterpret_cast<std::atomic<std::uint32_t>*>(outcome.rendezvous->control->data()) = 1;
    return PollUntilTrue([&] { return watch.Dead() == std::vector{1}; }) ? "ok" : "death went unnoticed";
  });
  MemberProcess victim = in_namespace(1, [&]() -> std::string {
    const RendezvousOutcome outcome = RunRendezvous(MakeRequest(name, 1, 2));
    if (!outcome.rendezvous) return outcome.failure.text;
    PollUntilTrue(
        [&] { return *reinterpret_cast<std::atomic<std::uint32_t>*>(outcome.rendezvous->control->data()) == 1; });
    kill(getpid(), SIGKILL);  // the first process of a namespace survives this
    _exit(9);
  });
  const std::string report = watcher.Report();
  if (report.starts_with("cannot: ")) GTEST_SKIP() << "a pid namespace needs root: " << report;
  EXPECT_EQ(report, "ok");
  EXPECT_EQ(victim.Report(), "killed");
}

}  // namespace
}  // namespace fulldeck::collectives
