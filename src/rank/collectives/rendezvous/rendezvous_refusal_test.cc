// Rendezvous that must fail, and unauthenticated peers that must not disturb one that succeeds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <optional>

#include "collectives/rendezvous/rendezvous.h"
#include "collectives/rendezvous/rendezvous_messages.h"
#include "collectives/rendezvous/rendezvous_socket.h"
#include "collectives/rendezvous/rendezvous_testing.h"

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::After;
using ::fulldeck::testing::kTestControlBytes;
using ::fulldeck::testing::kTestSegmentBytes;
using ::fulldeck::testing::MakeRequest;
using ::fulldeck::testing::MemberInProcess;
using ::fulldeck::testing::MemberProcess;
using ::fulldeck::testing::OpenDescriptors;
using ::fulldeck::testing::PollUntilTrue;
using ::fulldeck::testing::RendezvousAndReport;
using ::fulldeck::testing::RendezvousInThreads;
using ::fulldeck::testing::UniqueName;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kKey = "the key of the test";

// The other side of a handshake, step by step, so that each step can be wrong.
class RawMember {
 public:
  // Connects to `rank` until it is there.
  RawMember(const std::string& group, int rank) : group_(group) {
    EXPECT_TRUE(PollUntilTrue([&] {
      auto socket = ConnectTo(RendezvousAddress(kKey, group, rank));
      if (socket) socket_ = *std::move(socket);
      return socket_.valid();
    }));
  }
  void Send(const std::string& bytes, std::vector<int> descriptors = {}) const {
    EXPECT_TRUE(SendPacket(socket_.get(), bytes, descriptors));
  }
  // The next packet; nullopt at the end.
  std::optional<std::string> Receive() const {
    ReceivedPacket packet;
    EXPECT_TRUE(PollUntilTrue([&] {
      packet = ReceivePacket(socket_.get(), kMaxRendezvousPacket, 2);
      return packet.kind != ReceivedPacket::Kind::kNothingYet;
    }));
    if (packet.kind != ReceivedPacket::Kind::kPacket) return std::nullopt;
    return packet.bytes;
  }
  void SendHello(int rank, int size, std::uint32_t version = kRendezvousVersion) {
    own_hello_.rank = rank;
    own_hello_.size = size;
    own_hello_.version = version;
    own_hello_.nonce = MakeRendezvousNonce();
    Send(Encode(own_hello_));
    const auto packet = Receive();
    ASSERT_TRUE(packet);
    peer_hello_ = *DecodeHello(*packet);
  }
  void Prove(const std::string& key = kKey) {
    Send(Encode(ProofMessage{.proof = MakeRendezvousProof(key, group_, own_hello_, peer_hello_)}));
  }
  // Behaves like a member up to the exchange of memory.
  void Introduce(int rank, int size) {
    SendHello(rank, size);
    Prove();
    const auto packet = Receive();
    ASSERT_TRUE(packet);
    const auto proof = Decode<ProofMessage>(*packet);
    ASSERT_TRUE(proof);
    EXPECT_EQ(proof->proof, MakeRendezvousProof(kKey, group_, peer_hello_, own_hello_));
  }
  // Nothing more arrives, not even memory.
  bool IsTurnedAway() const {
    while (const auto packet = Receive()) {
      if (KindOf(*packet) == RendezvousMessage::kMember) return false;
    }
    return true;
  }
  void Leave() { socket_.Reset(); }

 private:
  std::string group_;
  base::UniqueFd socket_;
  HelloMessage own_hello_;
  HelloMessage peer_hello_;
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

// A rendezvous with one member in a thread; the test plays the other members.
class RendezvousWith {
 public:
  explicit RendezvousWith(RendezvousRequest request)
      : thread_([this, own_request = std::move(request)]() mutable {
          report_ = RendezvousAndReport(std::move(own_request));
        }) {}
  ~RendezvousWith() {
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

std::vector<RendezvousRequest> RequestsOf(const std::string& name, int size) {
  std::vector<RendezvousRequest> requests;
  for (int rank = 0; rank < size; ++rank) requests.push_back(MakeRequest(name, rank, size, 20s));
  return requests;
}

TEST(RendezvousRefusal, OtherVersionsAreReportedByBothAndPassedOn) {
  std::vector<RendezvousRequest> requests = RequestsOf(UniqueName("versions"), 4);
  requests[1].version = 77;
  EXPECT_THAT(RendezvousInThreads(std::move(requests)),
              Each(AllOf(StartsWith("stranger: "), HasSubstr("has version 2"), HasSubstr("has version 77"),
                         HasSubstr("rank 1 (pid"))));
}

TEST(RendezvousRefusal, OtherVersionsOfProcesses) {
  const std::string name = UniqueName("versions of processes");
  MemberProcess old_one = MemberInProcess([&] { return MakeRequest(name, 0, 2); });
  MemberProcess new_one = MemberInProcess([&] {
    RendezvousRequest request = MakeRequest(name, 1, 2);
    request.version = 5;
    return request;
  });
  const std::string report = old_one.Report();
  EXPECT_THAT(report, AllOf(StartsWith("stranger: "), HasSubstr("version 2"), HasSubstr("version 5"),
                            HasSubstr("the same build")));
  EXPECT_EQ(new_one.Report(), report);
}

TEST(RendezvousRefusal, OtherSizesReportBothSizes) {
  std::vector<RendezvousRequest> requests = RequestsOf(UniqueName("sizes"), 3);
  requests[2].size = 5;
  EXPECT_THAT(
      RendezvousInThreads(std::move(requests)),
      Each(AllOf(StartsWith("stranger: "), HasSubstr("says that it has 3 members and rank 2"), HasSubstr("says 5"))));
}

TEST(RendezvousRefusal, ARankBeyondTheOthersSizeIsReported) {
  const std::string name = UniqueName("beyond");
  std::vector<RendezvousRequest> requests;
  requests.push_back(MakeRequest(name, 0, 2, 20s));
  requests.push_back(MakeRequest(name, 6, 7, 20s));
  EXPECT_THAT(RendezvousInThreads(std::move(requests)), Each(AllOf(StartsWith("stranger: "), HasSubstr("rank 6"))));
}

TEST(RendezvousRefusal, DuplicateRanksAreRefusedForAll) {
  for (const int twice : {0, 1, 2}) {
    const std::string name = UniqueName("twice " + std::to_string(twice));
    std::vector<MemberProcess> members;
    // One is missing, so that the rendezvous lasts until the duplicate rank is there.
    for (const int rank : {0, 1, 2, twice}) {
      members.push_back(MemberInProcess([&] { return MakeRequest(name, rank, 4, 20s); }));
    }
    const std::string what = "two members say that they are rank " + std::to_string(twice) + ": pid ";
    for (MemberProcess& member : members) {
      EXPECT_THAT(member.Report(), AllOf(StartsWith("stranger: "), HasSubstr(what)));
    }
  }
}

TEST(RendezvousRefusal, OtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = UniqueName("users");
  MemberProcess root_one = MemberInProcess([&] { return MakeRequest(name, 0, 2, 20s); });
  MemberProcess other([&]() -> std::string {
    if (setgid(65534) != 0 || setuid(65534) != 0) return "cannot";
    return RendezvousAndReport(MakeRequest(name, 1, 2, 20s));
  });
  const std::string report = other.Report();
  EXPECT_THAT(report, AllOf(StartsWith("stranger: "), HasSubstr("as user 65534"), HasSubstr("runs as user 0")));
  EXPECT_EQ(root_one.Report(), report);
}

TEST(RendezvousRefusal, OtherSizesOfTheCommonMemoryAreRefused) {
  std::vector<RendezvousRequest> requests = RequestsOf(UniqueName("control"), 2);
  requests[1].control_bytes = 2 * kTestControlBytes;
  EXPECT_THAT(RendezvousInThreads(std::move(requests)),
              Each(AllOf(StartsWith("stranger: "), HasSubstr("common memory"))));
}

TEST(RendezvousRefusal, MemoryThatCannotBeMappedOnOneRankFailsAll) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than this test allows";
#endif
  const std::string name = UniqueName("memory");
  const auto with_large_segment = [&](int rank) {
    RendezvousRequest request = MakeRequest(name, rank, 3, 20s);
    request.segment = *SharedMemory::Create("large", std::uint64_t{64} << 30);
    request.info.segment_bytes = request.segment->size();
    return request;
  };
  std::vector<MemberProcess> members;
  for (const int rank : {0, 2}) members.push_back(MemberInProcess([&] { return with_large_segment(rank); }));
  members.push_back(MemberInProcess([&] {
    RendezvousRequest request = MakeRequest(name, 1, 3, 20s);
    const rlimit limit{std::uint64_t{4} << 30, std::uint64_t{4} << 30};
    setrlimit(RLIMIT_AS, &limit);
    return request;
  }));
  const auto text = AllOf(StartsWith("system: "), HasSubstr("rank 1 cannot use the memory of rank"),
                          HasSubstr("cannot map 64"), HasSubstr("Cannot allocate memory"));
  for (MemberProcess& member : members) EXPECT_THAT(member.Report(), text);
}

TEST(RendezvousRefusal, TooManyOpenFilesOnOneRankFailAll) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer opens pipes to look at memory, and takes it for bad when it cannot";
#endif
  const std::string name = UniqueName("descriptors");
  MemberProcess good = MemberInProcess([&] { return MakeRequest(name, 0, 2, 20s); });
  MemberProcess full = MemberInProcess([&] {
    RendezvousRequest request = MakeRequest(name, 1, 2, 20s);
    // Room for the address, the connection and the pidfd, and for one of the two memory descriptors.
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

TEST(RendezvousRefusal, AMemberThatDiesInTheMiddleIsNamed) {
  const std::string name = UniqueName("dies");
  MemberProcess zero = MemberInProcess([&] { return MakeRequest(name, 0, 3, 20s); });
  MemberProcess one = MemberInProcess([&] { return MakeRequest(name, 1, 3, 20s); });
  MemberProcess dies([&]() -> std::string {
    RawMember with_zero(name, 0);
    with_zero.Introduce(2, 3);
    RawMember with_one(name, 1);
    with_one.Introduce(2, 3);
    kill(getpid(), SIGKILL);
    return "";
  });
  const auto text = AllOf(StartsWith("peer lost: "), HasSubstr("rank 2 (pid " + std::to_string(dies.pid()) + ") died"));
  EXPECT_THAT(zero.Report(), text);
  EXPECT_THAT(one.Report(), text);
}

// Killed at any moment: the others end soon and name it, during the rendezvous or after it.
TEST(RendezvousRefusal, AMemberKilledAtAnyMomentDelaysNobody) {
  constexpr int kMoments = 16;
  for (int i = 0; i < kMoments; ++i) {
    const std::string name = UniqueName("killed " + std::to_string(i));
    std::vector<MemberProcess> members;
    for (const int rank : {0, 2}) {
      members.push_back(MemberProcess([&]() -> std::string {
        // A victim that dies before it is connected counts as missing.
        const RendezvousOutcome outcome = RunRendezvous(MakeRequest(name, rank, 3, 2s));
        if (!outcome.rendezvous) return outcome.failure.text;
        const auto is_noticed = [&] {
          const std::vector<int> dead = outcome.rendezvous->watch.Dead();
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
      const RendezvousOutcome outcome = RunRendezvous(MakeRequest(name, 1, 3, 2s));
      while (true) pause();
    });
    // On a busy machine the other member may also be missing at the timeout: "ranks 1, 2".
    const auto names_it = AnyOf(HasSubstr("rank 1"), HasSubstr("ranks 1"), HasSubstr("ranks 0, 1"));
    for (MemberProcess& member : members) EXPECT_THAT(member.Report(60s), names_it) << "killed after " << i;
    EXPECT_EQ(victim.Report(), "killed");
  }
}

TEST(RendezvousRefusal, AStoppedMemberIsNamedAtTheTimeout) {
  const std::string name = UniqueName("stopped");
  MemberProcess zero = MemberInProcess([&] { return MakeRequest(name, 0, 3, 2s); });
  MemberProcess one = MemberInProcess([&] { return MakeRequest(name, 1, 3, 2s); });
  MemberProcess stops([&]() -> std::string {
    RawMember with_zero(name, 0);
    with_zero.Introduce(2, 3);
    RawMember with_one(name, 1);
    with_one.Introduce(2, 3);
    kill(getpid(), SIGSTOP);
    return "";
  });
  const auto text = AllOf(StartsWith("timeout: "), HasSubstr("stopped (SIGSTOP)) came but did not get ready"));
  EXPECT_THAT(zero.Report(), text);
  EXPECT_THAT(one.Report(), text);
}

TEST(RendezvousRefusal, AMemberThatDoesNotAnswerIsNamedAtTheTimeout) {
  const std::string name = UniqueName("does not answer");
  MemberProcess zero([&]() -> std::string {
    const auto place = ListenAt(RendezvousAddress(kKey, name, 0), 10);
    kill(getpid(), SIGSTOP);
    return "";
  });
  EXPECT_TRUE(PollUntilTrue([&] { return ConnectTo(RendezvousAddress(kKey, name, 0)).ok(); }));
  EXPECT_THAT(RendezvousAndReport(MakeRequest(name, 1, 2, 1s)),
              AllOf(StartsWith("timeout: "),
                    HasSubstr("rank 0 (pid " + std::to_string(zero.pid()) + ", stopped (SIGSTOP)) does not answer")));
}

TEST(RendezvousRefusal, BadMemoryOfAMemberIsRefused) {
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
    const std::string name = UniqueName("bad memory " + each.reason);
    RendezvousWith rendezvous(MakeRequest(name, 0, 2, 20s));
    RawMember member(name, 0);
    member.Introduce(1, 2);
    member.Send(Encode(MemoryMessage()), each.memory.valid() ? std::vector{each.memory.get()} : std::vector<int>{});
    EXPECT_THAT(
        rendezvous.Report(),
        AllOf(StartsWith("stranger: "), HasSubstr("rank 0 cannot use the memory of rank 1"), HasSubstr(each.reason)));
    // The one that sent it is notified, too.
    const auto memory = member.Receive();
    ASSERT_TRUE(memory && Decode<MemberMessage>(*memory));
    const auto failure = member.Receive();
    ASSERT_TRUE(failure && DecodeFailure(*failure));
    EXPECT_THAT(DecodeFailure(*failure)->text, HasSubstr(each.reason));
  }
}

TEST(RendezvousRefusal, NonsenseOfAMemberIsRefused) {
  const base::UniqueFd memory = Memfd(kTestSegmentBytes, kAllSeals);
  const std::vector<std::string> nonsense{"x", Encode(ReadyMessage{}), Encode(MemoryMessage()) + "y",
                                          std::string(3 * kMaxRendezvousPacket, 'z')};
  for (const std::string& each : nonsense) {
    const std::string name = UniqueName("nonsense " + std::to_string(each.size()));
    RendezvousWith rendezvous(MakeRequest(name, 0, 2, 20s));
    RawMember member(name, 0);
    member.Introduce(1, 2);
    member.Send(each, {memory.get()});
    EXPECT_THAT(rendezvous.Report(), AllOf(StartsWith("stranger: "), HasSubstr("rank 1 sent something to rank 0")));
  }
}

TEST(RendezvousRefusal, AFailureThatIsReceivedIsShownAsPlainText) {
  const std::string name = UniqueName("told");
  RendezvousWith rendezvous(MakeRequest(name, 0, 2, 20s));
  RawMember member(name, 0);
  member.Introduce(1, 2);
  member.Send(EncodeFailure(12345, "a reason\x1b[2J of its own"));
  EXPECT_EQ(rendezvous.Report(), "system: a reason?[2J of its own");
}

TEST(RendezvousRefusal, UnrequestedDescriptorsAreClosed) {
  const int before = OpenDescriptors();
  {
    const std::string name = UniqueName("descriptors");
    const base::UniqueFd memory = Memfd(kTestSegmentBytes, kAllSeals);
    RendezvousWith rendezvous(MakeRequest(name, 0, 2, 20s));
    RawMember unauthenticated_peer(name, 0);
    unauthenticated_peer.Send("hello", {memory.get(), memory.get(), memory.get()});
    EXPECT_TRUE(unauthenticated_peer.IsTurnedAway());
    RawMember member(name, 0);
    member.Introduce(1, 2);
    member.Send(Encode(MemoryMessage()), {memory.get(), memory.get(), memory.get(), memory.get()});
    member.Send(Encode(ReadyMessage{}), {memory.get()});
    while (const auto packet = member.Receive()) {
      if (Decode<ReadyMessage>(*packet)) break;
    }
    // Its memory and its messages were valid; that it is not a real member shows later.
    EXPECT_EQ(rendezvous.Report(), "the note of rank 1 is not its own");
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(RendezvousRefusal, UnauthenticatedPeersDoNotDisturbARendezvous) {
  const std::string name = UniqueName("strangers");
  RendezvousWith zero(MakeRequest(name, 0, 3));
  RendezvousWith one(MakeRequest(name, 1, 3));
  std::vector<RawMember> unauthenticated_peers;
  unauthenticated_peers.reserve(200);
  for (const int rank : {0, 1}) {
    const auto unauthenticated_peer = [&]() -> RawMember& { return unauthenticated_peers.emplace_back(name, rank); };
    unauthenticated_peer();  // silent
    RawMember& garbage = unauthenticated_peer();
    garbage.Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(garbage.IsTurnedAway());
    RawMember& flood = unauthenticated_peer();
    flood.Send(std::string(60000, 'x'));
    EXPECT_TRUE(flood.IsTurnedAway());
    RawMember& wrong_key = unauthenticated_peer();
    wrong_key.SendHello(2, 3);
    wrong_key.Prove("another key");
    EXPECT_TRUE(wrong_key.IsTurnedAway());
    RawMember& other_version = unauthenticated_peer();
    other_version.SendHello(2, 3, 99);
    other_version.Prove("another key");
    EXPECT_TRUE(other_version.IsTurnedAway());
    RawMember& other_size = unauthenticated_peer();
    other_size.SendHello(2, 30000, 99);
    other_size.Send("no proof");
    EXPECT_TRUE(other_size.IsTurnedAway());
    // Knows the key, but claims a rank that would not connect.
    RawMember& wrong_rank = unauthenticated_peer();
    wrong_rank.SendHello(-4, 3);
    wrong_rank.Prove();
    EXPECT_TRUE(wrong_rank.IsTurnedAway());
    // Echoes what it receives.
    RawMember& echo = unauthenticated_peer();
    echo.Send(*echo.Receive());
    EXPECT_TRUE(echo.IsTurnedAway());
    // Disconnects in the middle, before it is authenticated.
    RawMember& leaves = unauthenticated_peer();
    leaves.SendHello(2, 3);
    leaves.Leave();
    // More silent connections than a listener keeps.
    for (int i = 0; i < 80; ++i) unauthenticated_peer();
  }
  EXPECT_EQ(RendezvousAndReport(MakeRequest(name, 2, 3)), "ok");
  EXPECT_EQ(zero.Report(), "ok");
  EXPECT_EQ(one.Report(), "ok");
}

TEST(RendezvousRefusal, UnauthenticatedPeersAreReportedWhenTheTimeRunsOut) {
  const std::string name = UniqueName("mentioned");
  RendezvousWith rendezvous(MakeRequest(name, 0, 2, 1500ms));
  RawMember unauthenticated_peer(name, 0);
  unauthenticated_peer.SendHello(1, 2);
  unauthenticated_peer.Prove("another key");
  EXPECT_TRUE(unauthenticated_peer.IsTurnedAway());
  EXPECT_THAT(rendezvous.Report(),
              AllOf(StartsWith("timeout: "), HasSubstr("did not prove that they know the key: 1, the last from pid " +
                                                       std::to_string(getpid()) + " of user")));
}

// Another process listens at the address of a member.
TEST(RendezvousRefusal, ATakenAddressIsTakenLaterOrReported) {
  const std::string name = UniqueName("taken");
  auto squatter = ListenAt(RendezvousAddress(kKey, name, 1), 100);
  ASSERT_TRUE(squatter.ok());
  EXPECT_THAT(
      RendezvousAndReport(MakeRequest(name, 1, 2, 400ms)),
      AllOf(StartsWith("timeout: "), HasSubstr("The place of rank 1 is taken: pid " + std::to_string(getpid()))));

  squatter->Reset();
  squatter = ListenAt(RendezvousAddress(kKey, name, 1), 100);
  ASSERT_TRUE(squatter.ok());
  RendezvousWith zero(MakeRequest(name, 0, 2));
  RendezvousWith one(MakeRequest(name, 1, 2));
  // Until a member has connected and found its address taken.
  EXPECT_TRUE(PollUntilTrue([&] { return AcceptFrom(squatter->get()).ok(); }));
  squatter->Reset();
  EXPECT_EQ(zero.Report(), "ok");
  EXPECT_EQ(one.Report(), "ok");
}

// A listener that hangs up belongs to the previous rendezvous: it is connected to again.
TEST(RendezvousRefusal, AListenerThatHangsUpIsConnectedToAgain) {
  const std::string name = UniqueName("hangs up");
  auto before = ListenAt(RendezvousAddress(kKey, name, 0), 100);
  ASSERT_TRUE(before.ok());
  RendezvousWith one(MakeRequest(name, 1, 2));
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
  EXPECT_EQ(RendezvousAndReport(MakeRequest(name, 0, 2)), "ok");
  EXPECT_EQ(one.Report(), "ok");
}

// A member that arrives shortly after a rendezvous has failed is notified, and does not wait for its own timeout.
TEST(RendezvousRefusal, LatecomersReceiveTheFailure) {
  const std::string name = UniqueName("latecomers");
  std::vector<RendezvousRequest> early = RequestsOf(name, 4);
  RendezvousRequest third = std::move(early[2]);
  early.resize(2);
  early[1].version = 9;
  std::vector<std::string> reports;
  std::thread two([&] { reports = RendezvousInThreads(std::move(early)); });
  RawMember latecomer(name, 1);
  const auto began = After({});
  EXPECT_THAT(RendezvousAndReport(std::move(third)), AllOf(StartsWith("stranger: "), HasSubstr("version 9")));
  EXPECT_LT(After({}) - began, 15s);
  two.join();
  EXPECT_THAT(reports, Each(StartsWith("stranger: ")));
}

// Once it was answered, the third takes rank 0 for a member, and would take its leaving for its death.
TEST(RendezvousRefusal, WhoeverWasAnsweredReceivesTheFailureEvenFromAMemberThatOnlyReceivedIt) {
  const std::string name = UniqueName("answered");
  RendezvousWith zero(MakeRequest(name, 0, 3));
  RawMember third(name, 0);
  third.SendHello(2, 3);
  const auto answer = third.Receive();
  ASSERT_TRUE(answer && Decode<ProofMessage>(*answer));
  RawMember second(name, 0);
  second.Introduce(1, 3);
  second.Send(EncodeFailure(FULLDECK_ERROR_SYSTEM, "no memory on rank 1"));
  while (second.Receive()) continue;
  third.Prove();
  const auto notified = third.Receive();
  ASSERT_TRUE(notified);
  const auto failure = DecodeFailure(*notified);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, FULLDECK_ERROR_SYSTEM);
  EXPECT_EQ(failure->text, "no memory on rank 1");
  EXPECT_FALSE(third.Receive());
  EXPECT_EQ(zero.Report(), "system: no memory on rank 1");
}

TEST(RendezvousRefusal, WhoeverWasAnsweredAndProvesNothingDelaysALeavingMemberByASecondAtMost) {
  const std::string name = UniqueName("answered and silent");
  RendezvousWith zero(MakeRequest(name, 0, 3));
  RawMember third(name, 0);
  third.SendHello(2, 3);
  ASSERT_TRUE(third.Receive());
  RawMember second(name, 0);
  second.Introduce(1, 3);
  second.Send(EncodeFailure(FULLDECK_ERROR_SYSTEM, "no memory on rank 1"));
  const auto began = After({});
  EXPECT_EQ(zero.Report(), "system: no memory on rank 1");
  EXPECT_LT(After({}) - began, 15s);
  EXPECT_TRUE(third.IsTurnedAway());
}

}  // namespace
}  // namespace fulldeck::collectives
