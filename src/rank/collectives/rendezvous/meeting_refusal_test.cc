// Meetings that must not come about, and strangers that must not disturb one that does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <optional>

#include "collectives/rendezvous/meeting.h"
#include "collectives/rendezvous/meeting_messages.h"
#include "collectives/rendezvous/meeting_socket.h"
#include "collectives/rendezvous/meeting_testing.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::After;
using ::fulldeck::testing::kTestControlBytes;
using ::fulldeck::testing::kTestSegmentBytes;
using ::fulldeck::testing::MakeRequest;
using ::fulldeck::testing::MeetAndReport;
using ::fulldeck::testing::MeetInThreads;
using ::fulldeck::testing::MemberInProcess;
using ::fulldeck::testing::MemberProcess;
using ::fulldeck::testing::OpenDescriptors;
using ::fulldeck::testing::OwnName;
using ::fulldeck::testing::PollUntilTrue;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kKey = "the key of the test";

// The other side of a hand-shake, said step by step, so that each step can be wrong.
class HandMade {
 public:
  // Calls `rank` until it is there.
  HandMade(const std::string& group, int rank) : group_(group) {
    EXPECT_TRUE(PollUntilTrue([&] {
      auto socket = ConnectTo(MeetingAddress(kKey, group, rank));
      if (socket) socket_ = *std::move(socket);
      return socket_.valid();
    }));
  }
  void Send(const std::string& bytes, std::vector<int> descriptors = {}) const {
    EXPECT_TRUE(SendPacket(socket_.get(), bytes, descriptors));
  }
  // The next packet; nothing at the end.
  std::optional<std::string> Receive() const {
    ReceivedPacket packet;
    EXPECT_TRUE(PollUntilTrue([&] {
      packet = ReceivePacket(socket_.get(), kLongestMeetingPacket, 2);
      return packet.kind != ReceivedPacket::Kind::kNothingYet;
    }));
    if (packet.kind != ReceivedPacket::Kind::kPacket) return std::nullopt;
    return packet.bytes;
  }
  void Greet(int rank, int size, std::uint32_t version = kMeetingVersion) {
    own_.rank = rank;
    own_.size = size;
    own_.version = version;
    own_.nonce = MakeMeetingNonce();
    Send(Encode(own_));
    const auto packet = Receive();
    ASSERT_TRUE(packet);
    theirs_ = *DecodeGreeting(*packet);
  }
  void Prove(const std::string& key = kKey) {
    Send(Encode(ProofMessage{.proof = MakeMeetingProof(key, group_, own_, theirs_)}));
  }
  // As a member does it up to the point where memory is exchanged.
  void Introduce(int rank, int size) {
    Greet(rank, size);
    Prove();
    const auto packet = Receive();
    ASSERT_TRUE(packet);
    const auto proof = Decode<ProofMessage>(*packet);
    ASSERT_TRUE(proof);
    EXPECT_EQ(proof->proof, MakeMeetingProof(kKey, group_, theirs_, own_));
  }
  // Nothing more comes, not even memory.
  bool IsTurnedAway() const {
    while (const auto packet = Receive()) {
      if (KindOf(*packet) == MeetingMessage::kMember) return false;
    }
    return true;
  }
  void Leave() { socket_.Reset(); }

 private:
  std::string group_;
  base::UniqueFd socket_;
  Greeting own_;
  Greeting theirs_;
};

MemberMessage MemoryMessage() {
  MemberMessage message;
  message.control_bytes = kTestControlBytes;
  message.segment_bytes = kTestSegmentBytes;
  return message;
}

base::UniqueFd Memfd(std::uint64_t bytes, int seals) {
  base::UniqueFd descriptor(static_cast<int>(syscall(SYS_memfd_create, "raw", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  EXPECT_EQ(ftruncate(descriptor.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(descriptor.get(), F_ADD_SEALS, seals), 0);
  return descriptor;
}
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A meeting with one member in a thread, and the test as the other members.
class MeetingWith {
 public:
  explicit MeetingWith(MeetingRequest request)
      : thread_([this, asked = std::move(request)]() mutable { report_ = MeetAndReport(std::move(asked)); }) {}
  ~MeetingWith() {
    if (thread_.joinable()) thread_.join();
  }
  std::string Report() {
    thread_.join();
    return report_;
  }

 private:
  std::string report_;
  std::thread thread_;
};

std::vector<MeetingRequest> RequestsOf(const std::string& name, int size) {
  std::vector<MeetingRequest> requests;
  for (int rank = 0; rank < size; ++rank) requests.push_back(MakeRequest(name, rank, size, 20s));
  return requests;
}

TEST(MeetingRefusal, OtherVersionsAreSaidByBothAndPassedOn) {
  std::vector<MeetingRequest> requests = RequestsOf(OwnName("versions"), 4);
  requests[1].version = 77;
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each(AllOf(StartsWith("stranger: "), HasSubstr("has version 2"),
                                                             HasSubstr("has version 77"), HasSubstr("rank 1 (pid"))));
}

TEST(MeetingRefusal, OtherVersionsOfProcesses) {
  const std::string name = OwnName("versions of processes");
  MemberProcess old_one = MemberInProcess([&] { return MakeRequest(name, 0, 2); });
  MemberProcess new_one = MemberInProcess([&] {
    MeetingRequest request = MakeRequest(name, 1, 2);
    request.version = 5;
    return request;
  });
  const std::string report = old_one.Report();
  EXPECT_THAT(report, AllOf(StartsWith("stranger: "), HasSubstr("version 2"), HasSubstr("version 5"),
                            HasSubstr("the same build")));
  EXPECT_EQ(new_one.Report(), report);
}

TEST(MeetingRefusal, OtherSizesSayWhoSaidWhat) {
  std::vector<MeetingRequest> requests = RequestsOf(OwnName("sizes"), 3);
  requests[2].size = 5;
  EXPECT_THAT(
      MeetInThreads(std::move(requests)),
      Each(AllOf(StartsWith("stranger: "), HasSubstr("says that it has 3 members and rank 2"), HasSubstr("says 5"))));
}

TEST(MeetingRefusal, ARankBeyondTheOthersSizeIsTold) {
  const std::string name = OwnName("beyond");
  std::vector<MeetingRequest> requests;
  requests.push_back(MakeRequest(name, 0, 2, 20s));
  requests.push_back(MakeRequest(name, 6, 7, 20s));
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each(AllOf(StartsWith("stranger: "), HasSubstr("rank 6"))));
}

TEST(MeetingRefusal, TwoOfOneRankAreRefusedForAll) {
  for (const int twice : {0, 1, 2}) {
    const std::string name = OwnName("twice " + std::to_string(twice));
    std::vector<MemberProcess> members;
    // One is missing, so that the meeting lasts until the second of the rank is there.
    for (const int rank : {0, 1, 2, twice}) {
      members.push_back(MemberInProcess([&] { return MakeRequest(name, rank, 4, 20s); }));
    }
    const std::string what = "two members say that they are rank " + std::to_string(twice) + ": pid ";
    for (MemberProcess& member : members) {
      EXPECT_THAT(member.Report(), AllOf(StartsWith("stranger: "), HasSubstr(what)));
    }
  }
}

TEST(MeetingRefusal, OtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = OwnName("users");
  MemberProcess root_one = MemberInProcess([&] { return MakeRequest(name, 0, 2, 20s); });
  MemberProcess other([&]() -> std::string {
    if (setgid(65534) != 0 || setuid(65534) != 0) return "cannot";
    return MeetAndReport(MakeRequest(name, 1, 2, 20s));
  });
  const std::string report = other.Report();
  EXPECT_THAT(report, AllOf(StartsWith("stranger: "), HasSubstr("as user 65534"), HasSubstr("runs as user 0")));
  EXPECT_EQ(root_one.Report(), report);
}

TEST(MeetingRefusal, OtherSizesOfTheCommonMemoryAreRefused) {
  std::vector<MeetingRequest> requests = RequestsOf(OwnName("control"), 2);
  requests[1].control_bytes = 2 * kTestControlBytes;
  EXPECT_THAT(MeetInThreads(std::move(requests)), Each(AllOf(StartsWith("stranger: "), HasSubstr("common memory"))));
}

TEST(MeetingRefusal, MemoryThatCannotBeMappedOnOneRankFailsAll) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than this test allows";
#endif
  const std::string name = OwnName("memory");
  const auto with_large_segment = [&](int rank) {
    MeetingRequest request = MakeRequest(name, rank, 3, 20s);
    request.segment = *SharedMemory::Create("large", std::uint64_t{64} << 30);
    request.note.segment_bytes = request.segment->size();
    return request;
  };
  std::vector<MemberProcess> members;
  for (const int rank : {0, 2}) members.push_back(MemberInProcess([&] { return with_large_segment(rank); }));
  members.push_back(MemberInProcess([&] {
    MeetingRequest request = MakeRequest(name, 1, 3, 20s);
    const rlimit limit{std::uint64_t{4} << 30, std::uint64_t{4} << 30};
    setrlimit(RLIMIT_AS, &limit);
    return request;
  }));
  const auto text = AllOf(StartsWith("system: "), HasSubstr("rank 1 cannot use the memory of rank"),
                          HasSubstr("cannot map 64"), HasSubstr("Cannot allocate memory"));
  for (MemberProcess& member : members) EXPECT_THAT(member.Report(), text);
}

TEST(MeetingRefusal, TooManyOpenFilesOnOneRankFailAll) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer opens pipes to look at memory, and takes it for bad when it cannot";
#endif
  const std::string name = OwnName("descriptors");
  MemberProcess good = MemberInProcess([&] { return MakeRequest(name, 0, 2, 20s); });
  MemberProcess full = MemberInProcess([&] {
    MeetingRequest request = MakeRequest(name, 1, 2, 20s);
    // Room for the place, the connection and the pidfd, and for one of the two memories.
    std::vector<int> free;
    for (int i = 0; i < 4; ++i) free.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const rlimit limit{static_cast<rlim_t>(free.back() + 1), static_cast<rlim_t>(free.back() + 1)};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (const int descriptor : free) close(descriptor);
    return request;
  });
  const std::string report = full.Report();
  EXPECT_THAT(report, AllOf(StartsWith("system: "), HasSubstr("rank 1"), HasSubstr("open files")));
  EXPECT_EQ(good.Report(), report);
}

TEST(MeetingRefusal, AMemberThatDiesInTheMiddleIsNamed) {
  const std::string name = OwnName("dies");
  MemberProcess zero = MemberInProcess([&] { return MakeRequest(name, 0, 3, 20s); });
  MemberProcess one = MemberInProcess([&] { return MakeRequest(name, 1, 3, 20s); });
  MemberProcess dies([&]() -> std::string {
    HandMade with_zero(name, 0);
    with_zero.Introduce(2, 3);
    HandMade with_one(name, 1);
    with_one.Introduce(2, 3);
    kill(getpid(), SIGKILL);
    return "";
  });
  const auto text = AllOf(StartsWith("peer lost: "), HasSubstr("rank 2 (pid " + std::to_string(dies.pid()) + ") died"));
  EXPECT_THAT(zero.Report(), text);
  EXPECT_THAT(one.Report(), text);
}

// Killed at any moment: the others end soon, and name it, in the meeting or after it.
TEST(MeetingRefusal, AMemberKilledAtAnyMomentHoldsNobodyUp) {
  constexpr int kMoments = 16;
  for (int i = 0; i < kMoments; ++i) {
    const std::string name = OwnName("killed " + std::to_string(i));
    std::vector<MemberProcess> members;
    for (const int rank : {0, 2}) {
      members.push_back(MemberProcess([&]() -> std::string {
        // A victim that dies before it is connected has simply not come.
        const MeetingOutcome outcome = Meet(MakeRequest(name, rank, 3, 2s));
        if (!outcome.meeting) return outcome.failure.text;
        const auto is_noticed = [&] {
          const std::vector<int> dead = outcome.meeting->watch.Dead();
          return std::find(dead.begin(), dead.end(), 1) != dead.end();
        };
        return PollUntilTrue(is_noticed) ? "rank 1 noticed" : "hung";
      }));
    }
    MemberProcess victim([&]() -> std::string {
      std::thread([i] {
        std::this_thread::sleep_for(i * 200us);
        kill(getpid(), SIGKILL);
      }).detach();
      const MeetingOutcome outcome = Meet(MakeRequest(name, 1, 3, 2s));
      while (true) pause();
    });
    // On a busy machine the other member may be missing at the timeout too: "ranks 1, 2".
    const auto names_it = AnyOf(HasSubstr("rank 1"), HasSubstr("ranks 1"), HasSubstr("ranks 0, 1"));
    for (MemberProcess& member : members) EXPECT_THAT(member.Report(60s), names_it) << "killed after " << i;
    EXPECT_EQ(victim.Report(), "killed");
  }
}

TEST(MeetingRefusal, AStoppedMemberIsNamedAtTheTimeout) {
  const std::string name = OwnName("stopped");
  MemberProcess zero = MemberInProcess([&] { return MakeRequest(name, 0, 3, 2s); });
  MemberProcess one = MemberInProcess([&] { return MakeRequest(name, 1, 3, 2s); });
  MemberProcess stops([&]() -> std::string {
    HandMade with_zero(name, 0);
    with_zero.Introduce(2, 3);
    HandMade with_one(name, 1);
    with_one.Introduce(2, 3);
    kill(getpid(), SIGSTOP);
    return "";
  });
  const auto text = AllOf(StartsWith("timeout: "), HasSubstr("stopped (SIGSTOP)) came but did not get ready"));
  EXPECT_THAT(zero.Report(), text);
  EXPECT_THAT(one.Report(), text);
}

TEST(MeetingRefusal, AMemberThatDoesNotAnswerIsNamedAtTheTimeout) {
  const std::string name = OwnName("does not answer");
  MemberProcess zero([&]() -> std::string {
    const auto place = ListenAt(MeetingAddress(kKey, name, 0), 10);
    kill(getpid(), SIGSTOP);
    return "";
  });
  EXPECT_TRUE(PollUntilTrue([&] { return ConnectTo(MeetingAddress(kKey, name, 0)).ok(); }));
  EXPECT_THAT(MeetAndReport(MakeRequest(name, 1, 2, 1s)),
              AllOf(StartsWith("timeout: "),
                    HasSubstr("rank 0 (pid " + std::to_string(zero.pid()) + ", stopped (SIGSTOP)) does not answer")));
}

TEST(MeetingRefusal, BadMemoryOfAMemberIsRefused) {
  struct Case {
    base::UniqueFd memory;
    std::string reason;
  };
  std::vector<Case> cases;
  cases.push_back({Memfd(kTestSegmentBytes, 0), "not sealed"});
  cases.push_back({Memfd(kTestSegmentBytes - 4096, kAllSeals), "are needed"});
  cases.push_back({base::UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), "no shared memory"});
  cases.push_back({base::UniqueFd(), "it sent none"});
  for (const Case& each : cases) {
    const std::string name = OwnName("bad memory " + each.reason);
    MeetingWith meeting(MakeRequest(name, 0, 2, 20s));
    HandMade member(name, 0);
    member.Introduce(1, 2);
    member.Send(Encode(MemoryMessage()), each.memory.valid() ? std::vector{each.memory.get()} : std::vector<int>{});
    EXPECT_THAT(meeting.Report(), AllOf(StartsWith("stranger: "), HasSubstr("rank 0 cannot use the memory of rank 1"),
                                        HasSubstr(each.reason)));
    // The one who sent it is told, too.
    const auto memory = member.Receive();
    ASSERT_TRUE(memory && Decode<MemberMessage>(*memory));
    const auto failure = member.Receive();
    ASSERT_TRUE(failure && DecodeFailure(*failure));
    EXPECT_THAT(DecodeFailure(*failure)->text, HasSubstr(each.reason));
  }
}

TEST(MeetingRefusal, NonsenseOfAMemberIsRefused) {
  const base::UniqueFd memory = Memfd(kTestSegmentBytes, kAllSeals);
  const std::vector<std::string> nonsense{"x", Encode(ReadyMessage{}), Encode(MemoryMessage()) + "y",
                                          std::string(3 * kLongestMeetingPacket, 'z')};
  for (const std::string& each : nonsense) {
    const std::string name = OwnName("nonsense " + std::to_string(each.size()));
    MeetingWith meeting(MakeRequest(name, 0, 2, 20s));
    HandMade member(name, 0);
    member.Introduce(1, 2);
    member.Send(each, {memory.get()});
    EXPECT_THAT(meeting.Report(), AllOf(StartsWith("stranger: "), HasSubstr("rank 1 sent something to rank 0")));
  }
}

TEST(MeetingRefusal, AFailureThatIsToldIsShownAsPlainText) {
  const std::string name = OwnName("told");
  MeetingWith meeting(MakeRequest(name, 0, 2, 20s));
  HandMade member(name, 0);
  member.Introduce(1, 2);
  member.Send(EncodeFailure(12345, "a reason\x1b[2J of its own"));
  EXPECT_EQ(meeting.Report(), "system: a reason?[2J of its own");
}

TEST(MeetingRefusal, DescriptorsThatNobodyAskedForDoNotStay) {
  const int before = OpenDescriptors();
  {
    const std::string name = OwnName("descriptors");
    const base::UniqueFd memory = Memfd(kTestSegmentBytes, kAllSeals);
    MeetingWith meeting(MakeRequest(name, 0, 2, 20s));
    HandMade stranger(name, 0);
    stranger.Send("hello", {memory.get(), memory.get(), memory.get()});
    EXPECT_TRUE(stranger.IsTurnedAway());
    HandMade member(name, 0);
    member.Introduce(1, 2);
    member.Send(Encode(MemoryMessage()), {memory.get(), memory.get(), memory.get(), memory.get()});
    member.Send(Encode(ReadyMessage{}), {memory.get()});
    while (const auto packet = member.Receive()) {
      if (Decode<ReadyMessage>(*packet)) break;
    }
    // Its memory and its word were good; that it is not really there shows later.
    EXPECT_EQ(meeting.Report(), "the note of rank 1 is not its own");
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(MeetingRefusal, StrangersDoNotDisturbAMeeting) {
  const std::string name = OwnName("strangers");
  MeetingWith zero(MakeRequest(name, 0, 3));
  MeetingWith one(MakeRequest(name, 1, 3));
  std::vector<HandMade> strangers;
  strangers.reserve(200);
  for (const int rank : {0, 1}) {
    const auto stranger = [&]() -> HandMade& { return strangers.emplace_back(name, rank); };
    stranger();  // silent
    HandMade& garbage = stranger();
    garbage.Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(garbage.IsTurnedAway());
    HandMade& flood = stranger();
    flood.Send(std::string(60000, 'x'));
    EXPECT_TRUE(flood.IsTurnedAway());
    HandMade& wrong_key = stranger();
    wrong_key.Greet(2, 3);
    wrong_key.Prove("another key");
    EXPECT_TRUE(wrong_key.IsTurnedAway());
    HandMade& other_version = stranger();
    other_version.Greet(2, 3, 99);
    other_version.Prove("another key");
    EXPECT_TRUE(other_version.IsTurnedAway());
    HandMade& other_size = stranger();
    other_size.Greet(2, 30000, 99);
    other_size.Send("no proof");
    EXPECT_TRUE(other_size.IsTurnedAway());
    // Knows the key, but claims a rank that would not call.
    HandMade& wrong_rank = stranger();
    wrong_rank.Greet(-4, 3);
    wrong_rank.Prove();
    EXPECT_TRUE(wrong_rank.IsTurnedAway());
    // Sends back what it hears.
    HandMade& echo = stranger();
    echo.Send(*echo.Receive());
    EXPECT_TRUE(echo.IsTurnedAway());
    // Goes away in the middle, before it has proven anything.
    HandMade& leaves = stranger();
    leaves.Greet(2, 3);
    leaves.Leave();
    // More silence than a door keeps.
    for (int i = 0; i < 80; ++i) stranger();
  }
  EXPECT_EQ(MeetAndReport(MakeRequest(name, 2, 3)), "ok");
  EXPECT_EQ(zero.Report(), "ok");
  EXPECT_EQ(one.Report(), "ok");
}

TEST(MeetingRefusal, StrangersAreMentionedWhenTheTimeRunsOut) {
  const std::string name = OwnName("mentioned");
  MeetingWith meeting(MakeRequest(name, 0, 2, 1500ms));
  HandMade stranger(name, 0);
  stranger.Greet(1, 2);
  stranger.Prove("another key");
  EXPECT_TRUE(stranger.IsTurnedAway());
  EXPECT_THAT(meeting.Report(),
              AllOf(StartsWith("timeout: "), HasSubstr("did not prove that they know the key: 1, the last from pid " +
                                                       std::to_string(getpid()) + " of user")));
}

// Somebody else listens where a member should.
TEST(MeetingRefusal, ATakenPlaceIsTakenLaterOrMentioned) {
  const std::string name = OwnName("taken");
  auto squatter = ListenAt(MeetingAddress(kKey, name, 1), 100);
  ASSERT_TRUE(squatter.ok());
  EXPECT_THAT(
      MeetAndReport(MakeRequest(name, 1, 2, 400ms)),
      AllOf(StartsWith("timeout: "), HasSubstr("The place of rank 1 is taken: pid " + std::to_string(getpid()))));

  squatter->Reset();
  squatter = ListenAt(MeetingAddress(kKey, name, 1), 100);
  ASSERT_TRUE(squatter.ok());
  MeetingWith zero(MakeRequest(name, 0, 2));
  MeetingWith one(MakeRequest(name, 1, 2));
  // Until one has come and found its place taken.
  EXPECT_TRUE(PollUntilTrue([&] { return AcceptFrom(squatter->get()).ok(); }));
  squatter->Reset();
  EXPECT_EQ(zero.Report(), "ok");
  EXPECT_EQ(one.Report(), "ok");
}

// A listener that hangs up is one of the meeting before: it is called again.
TEST(MeetingRefusal, AListenerThatHangsUpIsCalledAgain) {
  const std::string name = OwnName("hangs up");
  auto before = ListenAt(MeetingAddress(kKey, name, 0), 100);
  ASSERT_TRUE(before.ok());
  MeetingWith one(MakeRequest(name, 1, 2));
  for (int i = 0; i < 3; ++i) {
    base::UniqueFd connection;
    EXPECT_TRUE(PollUntilTrue([&] {
      auto accepted = AcceptFrom(before->get());
      if (accepted) connection = *std::move(accepted);
      return connection.valid();
    }));
    HangUp(connection);
  }
  before->Reset();
  EXPECT_EQ(MeetAndReport(MakeRequest(name, 0, 2)), "ok");
  EXPECT_EQ(one.Report(), "ok");
}

// Whoever comes a little late to a meeting that has failed is told so, and does not wait for its own time to run out.
TEST(MeetingRefusal, LatecomersAreToldWhatWentWrong) {
  const std::string name = OwnName("latecomers");
  std::vector<MeetingRequest> early = RequestsOf(name, 4);
  MeetingRequest third = std::move(early[2]);
  early.resize(2);
  early[1].version = 9;
  std::vector<std::string> reports;
  std::thread two([&] { reports = MeetInThreads(std::move(early)); });
  HandMade latecomer(name, 1);
  const auto began = After({});
  EXPECT_THAT(MeetAndReport(std::move(third)), AllOf(StartsWith("stranger: "), HasSubstr("version 9")));
  EXPECT_LT(After({}) - began, 15s);
  two.join();
  EXPECT_THAT(reports, Each(StartsWith("stranger: ")));
}

// Once it was answered, the third takes rank 0 for a member, and would take its leaving for its death.
TEST(MeetingRefusal, WhoeverWasAnsweredIsToldEvenByAMemberThatWasOnlyToldItself) {
  const std::string name = OwnName("answered");
  MeetingWith zero(MakeRequest(name, 0, 3));
  HandMade third(name, 0);
  third.Greet(2, 3);
  const auto answer = third.Receive();
  ASSERT_TRUE(answer && Decode<ProofMessage>(*answer));
  HandMade second(name, 0);
  second.Introduce(1, 3);
  second.Send(EncodeFailure(FULLDECK_ERROR_SYSTEM, "no memory on rank 1"));
  while (second.Receive()) continue;
  third.Prove();
  const auto told = third.Receive();
  ASSERT_TRUE(told);
  const auto failure = DecodeFailure(*told);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, FULLDECK_ERROR_SYSTEM);
  EXPECT_EQ(failure->text, "no memory on rank 1");
  EXPECT_FALSE(third.Receive());
  EXPECT_EQ(zero.Report(), "system: no memory on rank 1");
}

TEST(MeetingRefusal, WhoeverWasAnsweredAndProvesNothingHoldsALeavingMemberUpForASecondAtMost) {
  const std::string name = OwnName("answered and silent");
  MeetingWith zero(MakeRequest(name, 0, 3));
  HandMade third(name, 0);
  third.Greet(2, 3);
  ASSERT_TRUE(third.Receive());
  HandMade second(name, 0);
  second.Introduce(1, 3);
  second.Send(EncodeFailure(FULLDECK_ERROR_SYSTEM, "no memory on rank 1"));
  const auto began = After({});
  EXPECT_EQ(zero.Report(), "system: no memory on rank 1");
  EXPECT_LT(After({}) - began, 15s);
  EXPECT_TRUE(third.IsTurnedAway());
}

}  // namespace
}  // namespace fulldeck::collectives
