// Members that all do the right thing: they meet, or they are told who is missing.
#include "collectives/rendezvous/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "collectives/rendezvous/meeting_testing.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::After;
using ::fulldeck::testing::MakeRequest;
using ::fulldeck::testing::MeetAndReport;
using ::fulldeck::testing::MeetInThreads;
using ::fulldeck::testing::MemberInProcess;
using ::fulldeck::testing::MemberProcess;
using ::fulldeck::testing::OpenDescriptors;
using ::fulldeck::testing::OwnName;
using ::fulldeck::testing::PollUntilTrue;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<MeetingRequest> RequestsOf(const std::string& name, int size, base::Duration timeout = 60s) {
  std::vector<MeetingRequest> requests;
  for (int rank = 0; rank < size; ++rank) requests.push_back(MakeRequest(name, rank, size, timeout));
  return requests;
}

class MeetingOf : public ::testing::TestWithParam<int> {};

TEST_P(MeetingOf, ThreadsMeetAndReachEachOthersMemory) {
  EXPECT_THAT(MeetInThreads(RequestsOf(OwnName("threads"), GetParam())), Each("ok"));
}

TEST_P(MeetingOf, ProcessesMeetAndReachEachOthersMemory) {
  const std::string name = OwnName("processes");
  std::vector<MemberProcess> members;
  for (int rank = GetParam() - 1; rank >= 0; --rank) {
    members.push_back(MemberInProcess([&] { return MakeRequest(name, rank, GetParam()); }));
  }
  for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
}

TEST_P(MeetingOf, ProcessesMeetWithoutPidfds) {
  const std::string name = OwnName("connections");
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < GetParam(); ++rank) {
    members.push_back(MemberInProcess([&] {
      MeetingRequest request = MakeRequest(name, rank, GetParam());
      request.use_pidfd = false;
      return request;
    }));
  }
  for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
}

INSTANTIATE_TEST_SUITE_P(Sizes, MeetingOf, ::testing::Range(1, 10));

TEST(Meeting, ManyMembersMeet) {
  EXPECT_THAT(MeetInThreads(RequestsOf(OwnName("many"), 24)), Each("ok"));
}

TEST(Meeting, AloneNeedsNoSocketAndNoTime) {
  const int before = OpenDescriptors();
  MeetingRequest request = MakeRequest(OwnName("alone"), 0, 1);
  request.deadline = After(-1s);
  const MeetingOutcome outcome = Meet(std::move(request));
  ASSERT_TRUE(outcome.meeting) << outcome.failure.text;
  EXPECT_EQ(outcome.meeting->segments.size(), 1U);
  EXPECT_TRUE(outcome.meeting->watch.Dead().empty());
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Meeting, ThreadsOfOneProcessShareOneMapping) {
  std::vector<MeetingRequest> requests = RequestsOf(OwnName("one mapping"), 2);
  std::vector<std::byte*> own{requests[0].segment->data(), requests[1].segment->data()};
  std::array<MeetingOutcome, 2> outcomes;
  std::thread other([&] { outcomes[1] = Meet(std::move(requests[1])); });
  outcomes[0] = Meet(std::move(requests[0]));
  other.join();
  ASSERT_TRUE(outcomes[0].meeting && outcomes[1].meeting);
  for (const MeetingOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.meeting->segments[0]->data(), own[0]);
    EXPECT_EQ(outcome.meeting->segments[1]->data(), own[1]);
    EXPECT_EQ(outcome.meeting->control, outcomes[0].meeting->control);
  }
}

TEST(Meeting, WaitsForARankThatIsLate) {
  for (const int late : {0, 1, 2}) {
    const std::string name = OwnName("late " + std::to_string(late));
    std::vector<MemberProcess> members;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != late) members.push_back(MemberInProcess([&] { return MakeRequest(name, rank, 3); }));
    }
    // Nobody has got anywhere by then.
    EXPECT_EQ(members[0].Report(300ms), "too late");
    members.push_back(MemberInProcess([&] { return MakeRequest(name, late, 3); }));
    for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
  }
}

TEST(Meeting, TellsWhoDidNotCome) {
  const std::string name = OwnName("missing");
  std::vector<MeetingRequest> requests = RequestsOf(name, 6, 2s);
  requests.erase(requests.begin() + 3);
  requests.erase(requests.begin() + 1);
  const auto began = base::SteadyClock::Instance().Now();
  const std::vector<std::string> reports = MeetInThreads(std::move(requests));
  EXPECT_LT(base::SteadyClock::Instance().Now() - began, 20s);
  EXPECT_THAT(reports, Each(AllOf(StartsWith("timeout: "), HasSubstr("ranks 1 and 3 of 6 did not come"),
                                  HasSubstr(name), Not(HasSubstr("Nobody else")))));
}

TEST(Meeting, TellsThatNobodyCameAtAll) {
  EXPECT_THAT(MeetAndReport(MakeRequest(OwnName("nobody"), 2, 4, 300ms)),
              AllOf(StartsWith("timeout: "), HasSubstr("ranks 0, 1 and 3 of 4 did not come"),
                    HasSubstr("another network namespace"), HasSubstr("another name or key")));
}

TEST(Meeting, OtherNamesAndKeysDoNotMeet) {
  const std::string name = OwnName("keys");
  std::vector<MeetingRequest> requests = RequestsOf(name, 2, 500ms);
  requests[1].key = "another key";
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each(AllOf(StartsWith("timeout: "), HasSubstr("Nobody else came"))));
  requests = RequestsOf(name, 2, 500ms);
  requests[1].name = name + "x";
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each(AllOf(StartsWith("timeout: "), HasSubstr("Nobody else came"))));
}

TEST(Meeting, AnImpossibleRankIsAnError) {
  for (const auto& [rank, size] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0), std::pair(0, 257)}) {
    MeetingRequest request = MakeRequest("impossible", 0, 1);
    request.rank = rank;
    request.size = size;
    EXPECT_EQ(Meet(std::move(request)).failure.code, FULLDECK_ERROR_ARGUMENT) << rank << " of " << size;
  }
}

TEST(Meeting, SeveralAtOnceInOneProcessDoNotMix) {
  constexpr int kMeetings = 6;
  std::vector<MeetingRequest> requests;
  for (int meeting = 0; meeting < kMeetings; ++meeting) {
    for (MeetingRequest& request : RequestsOf(OwnName("at once " + std::to_string(meeting)), 3)) {
      requests.push_back(std::move(request));
    }
  }
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each("ok"));
}

// Everybody goes into the next meeting of the same name as soon as the one before lets it go.
TEST(Meeting, OneAfterAnotherWithTheSameNameDoNotMix) {
  constexpr int kMeetings = 25;
  constexpr int kSize = 4;
  const std::string name = OwnName("again");
  std::vector<MemberProcess> members;
  for (int rank = 0; rank < kSize; ++rank) {
    members.push_back(MemberProcess([&]() -> std::string {
      for (std::uint32_t round = 0; round < kMeetings; ++round) {
        MeetingRequest request = MakeRequest(name, rank, kSize);
        request.note.node = static_cast<std::int32_t>(round);
        const MeetingOutcome outcome = Meet(std::move(request));
        if (!outcome.meeting) return "round " + std::to_string(round) + ": " + outcome.failure.text;
        for (const MemberNote& note : outcome.meeting->notes) {
          if (note.node != static_cast<std::int32_t>(round)) return "a member of another round";
        }
      }
      return "ok";
    }));
  }
  for (MemberProcess& member : members) EXPECT_EQ(member.Report(), "ok");
}

TEST(Meeting, TheNextOneOfTheNameWorksAfterOneThatFailed) {
  const std::string name = OwnName("after failure");
  std::vector<MeetingRequest> requests = RequestsOf(name, 3, 300ms);
  requests.pop_back();
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each(StartsWith("timeout: ")));
  EXPECT_THAT(MeetInThreads(RequestsOf(name, 3)), Each("ok"));
}

TEST(Meeting, LeavesNoDescriptorAndNoFileBehind) {
  // Ignores the folders and files of tests that run at the same time.
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
  const std::string name = OwnName("leak");
  EXPECT_THAT(MeetInThreads(RequestsOf(name, 2)), Each("ok"));
  const int descriptors_before = OpenDescriptors();
  const int files_before = files();
  for (int i = 0; i < 200; ++i) ASSERT_THAT(MeetInThreads(RequestsOf(name, 2)), Each("ok"));
  EXPECT_EQ(OpenDescriptors(), descriptors_before);
  EXPECT_LE(files(), files_before);
}

// Besides its peer's pidfd, which all groups share, a group that stands holds nothing open.
TEST(Meeting, GroupsThatStandHoldOneDescriptorAPeer) {
  constexpr int kGroups = 40;
  const std::string name = OwnName("standing");
  const auto body = [&](int rank) -> std::string {
    std::vector<MeetingOutcome> held;
    held.push_back(Meet(MakeRequest(name, rank, 2)));
    const int with_one = OpenDescriptors();
    for (int i = 1; i < kGroups; ++i) held.push_back(Meet(MakeRequest(name, rank, 2)));
    for (const MeetingOutcome& outcome : held) {
      if (!outcome.meeting) return outcome.failure.text;
    }
    const int with_all = OpenDescriptors();
    return with_all == with_one ? "ok" : std::to_string(with_one) + " grew to " + std::to_string(with_all);
  };
  MemberProcess first([&] { return body(0); });
  MemberProcess second([&] { return body(1); });
  EXPECT_EQ(first.Report(), "ok");
  EXPECT_EQ(second.Report(), "ok");
}

TEST(Meeting, TwoNetworkNamespacesAreTwoHosts) {
  const std::string name = OwnName("namespaces");
  MemberProcess inside([&]() -> std::string {
    if (unshare(CLONE_NEWNET) != 0) return std::string("cannot: ") + strerror(errno);
    return MeetAndReport(MakeRequest(name, 1, 2, 600ms));
  });
  const std::string outside = MeetAndReport(MakeRequest(name, 0, 2, 600ms));
  const std::string report = inside.Report();
  if (report.starts_with("cannot: ")) GTEST_SKIP() << "a network namespace needs root: " << report;
  EXPECT_THAT(report, AllOf(StartsWith("timeout: "), HasSubstr("rank 0 of 2 did not come")));
  EXPECT_THAT(outside, AllOf(StartsWith("timeout: "), HasSubstr("rank 1 of 2 did not come")));
}

// The child of a pid namespace cannot be seen by its sibling, but its connection can.
TEST(Meeting, MembersOfTwoPidNamespacesMeetAndNoticeDeaths) {
  const std::string name = OwnName("pid namespaces");
  const auto in_namespace = [&](int rank, const std::function<std::string()>& body) {
    return MemberProcess([&, rank]() -> std::string {
      if (unshare(CLONE_NEWPID) != 0) return std::string("cannot: ") + strerror(errno);
      MemberProcess first(body);
      return first.Report();
    });
  };
  MemberProcess watcher = in_namespace(0, [&]() -> std::string {
    const MeetingOutcome outcome = Meet(MakeRequest(name, 0, 2));
    if (!outcome.meeting) return outcome.failure.text;
    const PeerWatch& watch = outcome.meeting->watch;
    if (watch.Describe(1) != "a process of another pid namespace") return watch.Describe(1);
    if (!watch.Dead().empty()) return "dead too early";
    *reinterpret_cast<std::atomic<std::uint32_t>*>(outcome.meeting->control->data()) = 1;
    return PollUntilTrue([&] { return watch.Dead() == std::vector{1}; }) ? "ok" : "death went unnoticed";
  });
  MemberProcess victim = in_namespace(1, [&]() -> std::string {
    const MeetingOutcome outcome = Meet(MakeRequest(name, 1, 2));
    if (!outcome.meeting) return outcome.failure.text;
    PollUntilTrue(
        [&] { return *reinterpret_cast<std::atomic<std::uint32_t>*>(outcome.meeting->control->data()) == 1; });
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
