#include "nodes/host_reception.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "net/host_address.h"
#include "net/host_proof.h"
#include "wire/sha256.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

// Three messages of a launcher are shorter.
constexpr std::uint64_t kStrangerByteLimit = 16 * 1024;
constexpr base::Duration kGoodbyePatience = 2s;
constexpr int kMostComplaints = 8;

// A connection takes two descriptors while its output waits, and there are as many that depart.
std::size_t MostStrangers() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return HostReception::kMostStrangers;
  return std::clamp<std::size_t>(limit.rlim_cur / 8, 8, HostReception::kMostStrangers);
}

}  // namespace

struct HostReception::Stranger {
  explicit Stranger(base::EventLoop& loop) : deadline(loop) {}
  std::unique_ptr<net::MessageLink> link;
  LoopTimer deadline;
  std::string their_nonce;
  std::string our_nonce;
  bool proved = false;
};

HostReception::HostReception(HostGroupCore& core, base::UniqueFd listener, Arrived arrived)
    : core_(core),
      listener_(std::move(listener)),
      arrived_(std::move(arrived)),
      pause_(core.loop),
      departing_(core.loop),
      most_strangers_(MostStrangers()) {
  departing_.SetMost(most_strangers_);
  Watch();
}

HostReception::~HostReception() {
  core_.loop.Remove(watch_);
}

void HostReception::Watch() {
  const auto watch = core_.loop.WhenReadable(listener_.get(), [this] { Accept(); });
  if (watch) {
    watch_ = *watch;
  } else {
    pause_.Set(100ms, [this] { Watch(); });
  }
}

void HostReception::Accept() {
  for (;;) {
    base::UniqueFd connected(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connected.valid()) {
      Admit(std::move(connected));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The connection waits on; so do we, or the loop would spin.
      core_.loop.Remove(watch_);
      watch_ = 0;
      pause_.Set(100ms, [this] { Watch(); });
      return;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Others tell of a connection that died in the queue.
  }
}

void HostReception::Admit(base::UniqueFd connected) {
  // The oldest goes: a launcher takes milliseconds, so it is the likeliest to be none.
  if (strangers_.size() >= most_strangers_) Forget(*strangers_.front());
  net::TuneConnection(connected.get(), core_.options.silence_limit);
  auto stranger = std::make_unique<Stranger>(core_.loop);
  Stranger* const who = stranger.get();
  net::MessageLink::Handlers handlers;
  handlers.message = [this, who](std::string_view text) { OnMessage(*who, text); };
  handlers.ended = [this, who](const net::MessageLink::End& end) {
    if (end.kind == net::MessageLink::EndKind::kNotOurs || end.kind == net::MessageLink::EndKind::kOtherVersion) {
      Complain(*who, end.reason);
    }
    // Our header tells a launcher of another version which one this is.
    if (end.kind == net::MessageLink::EndKind::kOtherVersion) return TurnAway(Forget(*who), end.reason);
    Forget(*who);
  };
  stranger->link =
      std::make_unique<net::MessageLink>(core_.loop, std::move(connected), kStrangerMessageLimit, std::move(handlers));
  stranger->link->SetTotalLimit(kStrangerByteLimit);
  stranger->deadline.Set(core_.options.handshake_timeout, [this, who] {
    Complain(*who, "it did not say in time that it belongs to this run");
    Forget(*who);
  });
  strangers_.push_back(std::move(stranger));
}

void HostReception::OnMessage(Stranger& stranger, std::string_view text) {
  const auto message = DecodeHostMessage(text);
  if (!message) {
    Complain(stranger, "it sent " + message.error().message);
    Forget(stranger);
    return;
  }
  if (const auto* hello = std::get_if<HelloMessage>(&*message); hello != nullptr && stranger.our_nonce.empty()) {
    stranger.their_nonce = hello->nonce;
    stranger.our_nonce = net::MakeNonce();
    stranger.link->Send(EncodeHostMessage(ChallengeMessage{stranger.our_nonce}));
    return;
  }
  if (const auto* proof = std::get_if<ProofMessage>(&*message);
      proof != nullptr && !stranger.our_nonce.empty() && !stranger.proved) {
    const std::string& token = core_.options.token;
    const std::string expected = net::MakeProof(net::ProofOf::kMember, token, stranger.their_nonce, stranger.our_nonce);
    if (!wire::EqualInConstantTime(proof->proof, expected)) {
      Complain(stranger, "its token is not the one of this run");
      return TurnAway(Forget(stranger),
                      "the token is not the one of this run: give the same --rdzv-id or FULLDECK_TOKEN");
    }
    stranger.proved = true;
    stranger.link->Send(EncodeHostMessage(
        ProofMessage{net::MakeProof(net::ProofOf::kCoordinator, token, stranger.their_nonce, stranger.our_nonce)}));
    return;
  }
  if (const auto* join = std::get_if<JoinMessage>(&*message); join != nullptr && stranger.proved) {
    auto link = Forget(stranger);
    link->SetHandlers({});
    link->SetTotalLimit(std::nullopt);
    link->SetMessageLimit(kMemberMessageLimit);
    return arrived_(std::move(link), *join);
  }
  Complain(stranger, "it sent a message out of order");
  Forget(stranger);
}

void HostReception::Complain(const Stranger& stranger, const std::string& reason) {
  if (++complaints_ > kMostComplaints) return;
  core_.Say("turned away a connection from " + stranger.link->remote_address() + ": " + reason +
            (complaints_ == kMostComplaints ? ". Further ones are turned away without a line." : ""));
}

std::unique_ptr<net::MessageLink> HostReception::Forget(Stranger& stranger) {
  auto link = std::move(stranger.link);
  strangers_.remove_if([&](const auto& held) { return held.get() == &stranger; });
  return link;
}

void HostReception::TurnAway(std::unique_ptr<net::MessageLink> link, const std::string& reason) {
  link->Send(EncodeHostMessage(RefusedMessage{reason}));
  departing_.Add(std::move(link), kGoodbyePatience);
}

}  // namespace fulldeck::nodes
