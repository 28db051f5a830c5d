#include "nodes/node_acceptor.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "net/host_address.h"
#include "net/token_auth.h"
#include "wire/sha256.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

// More than the three messages of a launcher's handshake take.
constexpr std::uint64_t kHandshakeByteLimit = 16 * 1024;
constexpr base::Duration kCloseTimeout = 2s;
constexpr int kMaxLoggedRejections = 8;

// A connection takes two descriptors while its output is buffered, and as many connections may be closing.
std::size_t MaxPending() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return NodeAcceptor::kMaxPending;
  return std::clamp<std::size_t>(limit.rlim_cur / 8, 8, NodeAcceptor::kMaxPending);
}

}  // namespace

struct NodeAcceptor::PendingPeer {
  explicit PendingPeer(base::EventLoop& loop) : deadline(loop) {}
  std::unique_ptr<net::MessageLink> link;
  base::LoopTimer deadline;
  std::string their_nonce;
  std::string our_nonce;
  bool authenticated = false;
};

NodeAcceptor::NodeAcceptor(NodeGroupContext& context, base::UniqueFd listener, Arrived arrived)
    : context_(context),
      listener_(std::move(listener)),
      arrived_(std::move(arrived)),
      pause_(context.loop),
      closing_(context.loop),
      max_pending_(MaxPending()) {
  closing_.SetMax(max_pending_);
  Watch();
}

NodeAcceptor::~NodeAcceptor() {
  context_.loop.Remove(watch_);
}

void NodeAcceptor::Watch() {
  const auto watch = context_.loop.WhenReadable(listener_.get(), [this] { Accept(); });
  if (watch) {
    watch_ = *watch;
  } else {
    pause_.Set(100ms, [this] { Watch(); });
  }
}

void NodeAcceptor::Accept() {
  for (;;) {
    base::UniqueFd connected(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connected.valid()) {
      Admit(std::move(connected));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // Out of descriptors: the connection stays in the backlog. Stop watching for a while, or the loop would spin.
      context_.loop.Remove(watch_);
      watch_ = 0;
      pause_.Set(100ms, [this] { Watch(); });
      return;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Other errors concern a connection that died in the backlog.
  }
}

void NodeAcceptor::Admit(base::UniqueFd connected) {
  // Drop the oldest: the handshake of a launcher takes milliseconds, so the oldest one is the least likely to be a
  // launcher.
  if (pending_.size() >= max_pending_) Forget(*pending_.front());
  net::TuneConnection(connected.get(), context_.options.silence_limit);
  auto peer = std::make_unique<PendingPeer>(context_.loop);
  PendingPeer* const who = peer.get();
  net::MessageLink::Handlers handlers;
  handlers.message = [this, who](std::string_view text) { OnMessage(*who, text); };
  handlers.ended = [this, who](const net::MessageLink::End& end) {
    if (end.kind == net::MessageLink::EndKind::kNotOurs || end.kind == net::MessageLink::EndKind::kOtherVersion) {
      LogRejection(*who, end.reason);
    }
    // Our header tells a launcher of another version which version this is.
    if (end.kind == net::MessageLink::EndKind::kOtherVersion) return Reject(Forget(*who), end.reason);
    Forget(*who);
  };
  peer->link = std::make_unique<net::MessageLink>(context_.loop, std::move(connected), kHandshakeMessageLimit,
                                                  std::move(handlers));
  peer->link->SetTotalLimit(kHandshakeByteLimit);
  peer->deadline.Set(context_.options.handshake_timeout, [this, who] {
    LogRejection(*who, "it did not say in time that it belongs to this run");
    Forget(*who);
  });
  pending_.push_back(std::move(peer));
}

// Invariant: hello, proof and join are each accepted once and in this order only: our_nonce is set by hello,
// authenticated by a valid proof. A link reaches arrived_ only after both.
void NodeAcceptor::OnMessage(PendingPeer& peer, std::string_view text) {
  const auto message = DecodeNodeMessage(text);
  if (!message) {
    LogRejection(peer, "it sent " + message.error().message);
    Forget(peer);
    return;
  }
  if (const auto* hello = std::get_if<HelloMessage>(&*message); hello != nullptr && peer.our_nonce.empty()) {
    peer.their_nonce = hello->nonce;
    peer.our_nonce = net::MakeNonce();
    peer.link->Send(EncodeNodeMessage(ChallengeMessage{peer.our_nonce}));
    return;
  }
  if (const auto* proof = std::get_if<ProofMessage>(&*message);
      proof != nullptr && !peer.our_nonce.empty() && !peer.authenticated) {
    const std::string& token = context_.options.token;
    const std::string expected = net::MakeProof(net::ProofRole::kMember, token, peer.their_nonce, peer.our_nonce);
    if (!wire::EqualInConstantTime(proof->proof, expected)) {
      LogRejection(peer, "its token is not the one of this run");
      return Reject(Forget(peer), "the token is not the one of this run: give the same --rdzv-id or FULLDECK_TOKEN");
    }
    peer.authenticated = true;
    peer.link->Send(EncodeNodeMessage(
        ProofMessage{net::MakeProof(net::ProofRole::kCoordinator, token, peer.their_nonce, peer.our_nonce)}));
    return;
  }
  if (const auto* join = std::get_if<JoinMessage>(&*message); join != nullptr && peer.authenticated) {
    auto link = Forget(peer);
    link->SetHandlers({});
    link->SetTotalLimit(std::nullopt);
    link->SetMessageLimit(kMemberMessageLimit);
    return arrived_(std::move(link), *join);
  }
  LogRejection(peer, "it sent a message out of order");
  Forget(peer);
}

void NodeAcceptor::LogRejection(const PendingPeer& peer, const std::string& reason) {
  if (++logged_rejections_ > kMaxLoggedRejections) return;
  context_.LogLine(
      "turned away a connection from " + peer.link->remote_address() + ": " + reason +
      (logged_rejections_ == kMaxLoggedRejections ? ". Further ones are turned away without a line." : ""));
}

std::unique_ptr<net::MessageLink> NodeAcceptor::Forget(PendingPeer& peer) {
  auto link = std::move(peer.link);
  pending_.remove_if([&](const auto& held) { return held.get() == &peer; });
  return link;
}

void NodeAcceptor::Reject(std::unique_ptr<net::MessageLink> link, const std::string& reason) {
  link->Send(EncodeNodeMessage(RefusedMessage{reason}));
  closing_.Add(std::move(link), kCloseTimeout);
}

}  // namespace fulldeck::nodes
