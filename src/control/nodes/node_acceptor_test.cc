// Unauthenticated peers that connect to a coordinator that waits for one more node.
#include "nodes/node_acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/files/system_root.h"
#include "net/token_auth.h"
#include "test_nodes.h"
#include "wire/bytes_header.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using ::fulldeck::testing::ConnectTo;
using ::fulldeck::testing::FreePort;
using ::fulldeck::testing::PollUntil;
using ::fulldeck::testing::RunUntil;
using ::fulldeck::testing::TestNode;
using ::testing::HasSubstr;

std::string Framed(std::string_view payload, std::uint32_t version = net::kLinkVersion) {
  const wire::BytesHeader header =
      wire::MakeHeader(net::kLinkMagic, version, static_cast<std::uint32_t>(payload.size()));
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(payload);
}

class NodeAcceptorTest : public ::testing::Test {
 protected:
  NodeGroupOptions Options(const std::string& name, int node_rank) const {
    NodeGroupOptions options;
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = port_;
    options.node_rank = node_rank;
    options.min_nodes = options.max_nodes = 2;
    options.token = "secret";
    options.host_name = name;
    options.handshake_timeout = 400ms;
    return options;
  }
  void SetUp() override {
    coordinator_ = std::make_unique<TestNode>(loop_, Options("A", 0));
    ASSERT_TRUE(coordinator_->group->Join().ok());
  }
  void Send(const base::UniqueFd& client, std::string_view bytes) {
    ASSERT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Reads until the coordinator closes the connection; fails if it does not.
  std::string ReadToTheEnd(const base::UniqueFd& client, base::Duration timeout = 20s) {
    std::string text;
    const bool closed = PollUntil(
        loop_,
        [&] {
          char buffer[4096];
          const ssize_t got = recv(client.get(), buffer, sizeof buffer, MSG_DONTWAIT);
          if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
          return got == 0 || (got < 0 && errno == ECONNRESET);
        },
        timeout);
    EXPECT_TRUE(closed) << "the connection was left open";
    return text;
  }
  // The next message to the client.
  NodeMessage ReadMessage(const base::UniqueFd& client) {
    std::string text;
    std::size_t wanted = sizeof(wire::BytesHeader);
    const bool whole = PollUntil(loop_, [&] {
      char byte = 0;
      while (text.size() < wanted && recv(client.get(), &byte, 1, MSG_DONTWAIT) == 1) text += byte;
      if (text.size() == sizeof(wire::BytesHeader)) {
        wire::BytesHeader header;
        std::memcpy(&header, text.data(), sizeof header);
        wanted = sizeof header + header.length;
      }
      return text.size() > sizeof(wire::BytesHeader) && text.size() == wanted;
    });
    EXPECT_TRUE(whole) << "no message came";
    if (!whole) return StoppedMessage{};
    const auto message = DecodeNodeMessage(std::string_view(text).substr(sizeof(wire::BytesHeader)));
    EXPECT_TRUE(message.ok());
    return message.ok() ? *message : NodeMessage(StoppedMessage{});
  }
  // A real member can still join after the preceding events.
  void ExpectStillOpenForMembers() {
    TestNode member(loop_, Options("B", 1));
    ASSERT_TRUE(member.group->Join().ok());
    EXPECT_TRUE(RunUntil(loop_, [&] { return !member.starts.empty() && !coordinator_->starts.empty(); }))
        << coordinator_->AllLogged();
  }

  base::EventLoop loop_;
  int port_ = FreePort();
  std::unique_ptr<TestNode> coordinator_;
};

TEST_F(NodeAcceptorTest, SendsNothingToAPeerThatSendsNonsense) {
  const base::UniqueFd client = ConnectTo(port_);
  Send(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(ReadToTheEnd(client), "");
  EXPECT_TRUE(
      coordinator_->Logged("turned away a connection from 127.0.0.1: it does not speak as a fulldeck launcher"));
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, ClosesASilentPendingPeerInTime) {
  const base::UniqueFd client = ConnectTo(port_);
  const base::TimePoint began = base::SteadyClock::Instance().Now();
  EXPECT_EQ(ReadToTheEnd(client), "");
  EXPECT_GE(base::SteadyClock::Instance().Now() - began, 350ms);
  EXPECT_LT(base::SteadyClock::Instance().Now() - began, 5s);
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, APendingPeerThatSendsSlowlyHasNoMoreTime) {
  const base::UniqueFd client = ConnectTo(port_);
  const std::string bytes = Framed(EncodeNodeMessage(HelloMessage{net::MakeNonce()}));
  std::size_t sent = 0;
  const base::TimePoint began = base::SteadyClock::Instance().Now();
  const bool closed = PollUntil(loop_, [&] {
    if (sent < 15) sent += send(client.get(), bytes.data() + sent, 1, MSG_NOSIGNAL) == 1 ? 1 : 0;
    loop_.RunOnce(40ms);
    char byte = 0;
    return recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  });
  EXPECT_TRUE(closed);
  EXPECT_LT(base::SteadyClock::Instance().Now() - began, 5s);
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, AHugeLengthIsRefusedAtOnce) {
  const base::UniqueFd client = ConnectTo(port_);
  const wire::BytesHeader header = wire::MakeHeader(net::kLinkMagic, net::kLinkVersion, 0x7fffffff);
  Send(client, {reinterpret_cast<const char*>(&header), sizeof header});
  EXPECT_EQ(ReadToTheEnd(client), "");
  EXPECT_TRUE(coordinator_->Logged("2147483647 bytes follow")) << coordinator_->AllLogged();
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, JoiningWithoutAProofIsRefused) {
  for (const NodeMessage& first :
       {NodeMessage(JoinMessage{"B", {}, 1, 4, 2, 2}), NodeMessage(ProofMessage{net::MakeNonce()}),
        NodeMessage(HeartbeatMessage{}), NodeMessage(FinishedMessage{}), NodeMessage(FailedMessage{})}) {
    const base::UniqueFd client = ConnectTo(port_);
    Send(client, Framed(EncodeNodeMessage(first)));
    EXPECT_EQ(ReadToTheEnd(client), "");
  }
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, AProofCannotBeSentBackOrUsedAgain) {
  // An eavesdropper sees the proof of a valid member and must not be able to use it.
  const std::string nonce = net::MakeNonce();
  const base::UniqueFd good = ConnectTo(port_);
  Send(good, Framed(EncodeNodeMessage(HelloMessage{nonce})));
  const auto challenge = std::get<ChallengeMessage>(ReadMessage(good));
  const std::string proof = net::MakeProof(net::ProofRole::kMember, "secret", nonce, challenge.nonce);
  Send(good, Framed(EncodeNodeMessage(ProofMessage{proof})));
  const auto answer = std::get<ProofMessage>(ReadMessage(good));
  EXPECT_EQ(answer.proof, net::MakeProof(net::ProofRole::kCoordinator, "secret", nonce, challenge.nonce));
  EXPECT_NE(answer.proof, proof);

  for (const std::string& stolen : {proof, answer.proof}) {
    const base::UniqueFd thief = ConnectTo(port_);
    Send(thief, Framed(EncodeNodeMessage(HelloMessage{nonce})));
    EXPECT_NE(std::get<ChallengeMessage>(ReadMessage(thief)).nonce, challenge.nonce);
    Send(thief, Framed(EncodeNodeMessage(ProofMessage{stolen})));
    const NodeMessage refusal = ReadMessage(thief);
    ASSERT_TRUE(std::holds_alternative<RefusedMessage>(refusal));
    EXPECT_THAT(std::get<RefusedMessage>(refusal).reason, HasSubstr("the token is not the one of this run"));
  }
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, ALauncherOfAnotherVersionLearnsBothVersions) {
  const base::UniqueFd client = ConnectTo(port_);
  Send(client, Framed("{}", 2));
  const std::string answer = ReadToTheEnd(client);
  ASSERT_GE(answer.size(), sizeof(wire::BytesHeader));
  wire::BytesHeader header;
  std::memcpy(&header, answer.data(), sizeof header);
  EXPECT_EQ(header.version, net::kLinkVersion) << "the header alone tells it";
  EXPECT_THAT(answer, HasSubstr("it speaks version 2"));
  EXPECT_TRUE(coordinator_->Logged("it speaks version 2 of the protocol between hosts, this fulldeck speaks version 1"))
      << coordinator_->AllLogged();
  ExpectStillOpenForMembers();
}

TEST_F(NodeAcceptorTest, AMemberThatFindsAnotherVersionNamesBoth) {
  int port = 0;
  const base::UniqueFd other = ::fulldeck::testing::ListenOnLoopback(0, port);
  NodeGroupOptions options = Options("B", 1);
  options.endpoint_port = port;
  TestNode member(loop_, options);
  ASSERT_TRUE(member.group->Join().ok());
  base::UniqueFd accepted;
  ASSERT_TRUE(PollUntil(loop_, [&] {
    accepted.Reset(accept4(other.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return accepted.valid();
  }));
  Send(accepted, Framed("{}", 9));
  ASSERT_TRUE(RunUntil(loop_, [&] { return member.gave_up.has_value(); }));
  EXPECT_THAT(*member.gave_up, HasSubstr("it speaks version 9"));
  EXPECT_THAT(*member.gave_up, HasSubstr("this fulldeck speaks version 1"));
}

TEST_F(NodeAcceptorTest, AMemberSendsNothingToACoordinatorWithoutTheToken) {
  int port = 0;
  const base::UniqueFd fake = ::fulldeck::testing::ListenOnLoopback(0, port);
  NodeGroupOptions options = Options("B-with-a-telling-name", 1);
  options.endpoint_port = port;
  TestNode member(loop_, options);
  ASSERT_TRUE(member.group->Join().ok());
  base::UniqueFd accepted;
  ASSERT_TRUE(PollUntil(loop_, [&] {
    accepted.Reset(accept4(fake.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return accepted.valid();
  }));
  ASSERT_TRUE(std::holds_alternative<HelloMessage>(ReadMessage(accepted)));
  Send(accepted, Framed(EncodeNodeMessage(ChallengeMessage{net::MakeNonce()})));
  ASSERT_TRUE(std::holds_alternative<ProofMessage>(ReadMessage(accepted)));
  Send(accepted, Framed(EncodeNodeMessage(ProofMessage{net::MakeNonce()})));
  EXPECT_THAT(ReadToTheEnd(accepted), ::testing::Not(HasSubstr("telling-name")));
  ASSERT_TRUE(RunUntil(loop_, [&] { return member.gave_up.has_value(); }));
  EXPECT_THAT(*member.gave_up, HasSubstr("does not know the token of this run"));
}

TEST_F(NodeAcceptorTest, ManyUnauthenticatedPeersKeepNoMemberOut) {
  std::vector<base::UniqueFd> crowd;
  for (std::size_t i = 0; i < NodeAcceptor::kMaxPending + 50; ++i) {
    crowd.push_back(ConnectTo(port_));
    ASSERT_TRUE(crowd.back().valid());
    loop_.RunOnce(0ms);
  }
  ExpectStillOpenForMembers();
  EXPECT_LT(coordinator_->logged.size(), 20U) << "a crowd does not flood the console";
}

std::size_t OpenDescriptors() {
  return base::SystemRoot().List("/proc/self/fd").size();
}

TEST_F(NodeAcceptorTest, ThoseThatAreRejectedWithAReasonAreBoundedToo) {
  const std::size_t before = OpenDescriptors();
  std::vector<base::UniqueFd> crowd;
  for (int i = 0; i < 400; ++i) {
    crowd.push_back(ConnectTo(port_));
    ASSERT_TRUE(crowd.back().valid());
    Send(crowd.back(), Framed("{}", 2));
    for (int turn = 0; turn < 3; ++turn) loop_.RunOnce(0ms);
  }
  EXPECT_LE(OpenDescriptors() - before - crowd.size(), 2 * NodeAcceptor::kMaxPending + 8);
  ExpectStillOpenForMembers();
}

TEST(TokenAuth, NoncesAreNeverTheSame) {
  std::set<std::string> nonces;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(nonces.insert(net::MakeNonce()).second);
  EXPECT_EQ(nonces.begin()->size(), 64U);
}

}  // namespace
}  // namespace fulldeck::nodes
