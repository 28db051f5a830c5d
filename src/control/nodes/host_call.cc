#include "nodes/host_call.h"

#include <cerrno>
#include <cstring>

#include "net/host_proof.h"
#include "wire/sha256.h"

namespace fulldeck::nodes {

HostCall::HostCall(HostGroupCore& core, const net::HostAddress& address, Done done)
    : core_(core), address_(address), done_(std::move(done)), timer_(core.loop) {
  auto connecting = net::BeginConnect(address_);
  if (!connecting) {
    const std::string trouble = connecting.error().message;
    timer_.Set(base::Duration(0), [this, trouble] { Fail(trouble); });
    return;
  }
  connecting_ = std::move(*connecting);
  const auto watch = core_.loop.WhenWritable(connecting_.get(), [this] { Connected(); });
  if (watch) watch_ = *watch;
  timer_.Set(core_.options.handshake_timeout, [this] { Fail(address_.WithPort() + " does not answer"); });
}

HostCall::~HostCall() {
  core_.loop.Remove(watch_);
}

void HostCall::Connected() {
  core_.loop.Remove(watch_);
  watch_ = 0;
  const int error = net::ConnectOutcome(connecting_.get());
  if (error != 0) return Fail("cannot connect to " + address_.WithPort() + ": " + std::strerror(error));
  net::TuneConnection(connecting_.get(), core_.options.silence_limit);
  timer_.Set(core_.options.handshake_timeout, [this] {
    Fail(address_.WithPort() + " takes connections, but does not answer as a fulldeck launcher does");
  });
  net::MessageLink::Handlers handlers;
  handlers.message = [this](std::string_view text) { OnMessage(text); };
  handlers.ended = [this](const net::MessageLink::End& end) {
    switch (end.kind) {
      case net::MessageLink::EndKind::kClosed:
      case net::MessageLink::EndKind::kBroken:
        return Fail(address_.WithPort() + " took the connection and hung up");
      case net::MessageLink::EndKind::kNotOurs:
        return Fail("what listens on " + address_.WithPort() + " is no fulldeck launcher of this version (" +
                        end.reason + "): choose another port, or end what holds this one",
                    true);
      case net::MessageLink::EndKind::kOtherVersion:
        // Our header tells the coordinator which version this is; it may have been the first to speak.
        link_->Send(EncodeHostMessage(RefusedMessage{end.reason}));
        return Fail("the launcher on " + address_.WithPort() + ": " + end.reason, true);
    }
  };
  link_ = std::make_unique<net::MessageLink>(core_.loop, std::move(connecting_), kStrangerMessageLimit,
                                             std::move(handlers));
  our_nonce_ = net::MakeNonce();
  link_->Send(EncodeHostMessage(HelloMessage{our_nonce_}));
}

void HostCall::OnMessage(std::string_view text) {
  const auto message = DecodeHostMessage(text);
  const std::string who = "the launcher on " + address_.WithPort();
  if (!message) return Fail(who + " sent " + message.error().message, true);
  if (const auto* refused = std::get_if<RefusedMessage>(&*message)) {
    return Fail(who + " turned this host away: " + refused->reason, true);
  }
  const std::string& token = core_.options.token;
  if (const auto* challenge = std::get_if<ChallengeMessage>(&*message); challenge != nullptr && their_nonce_.empty()) {
    their_nonce_ = challenge->nonce;
    link_->Send(
        EncodeHostMessage(ProofMessage{net::MakeProof(net::ProofOf::kMember, token, our_nonce_, their_nonce_)}));
    return;
  }
  if (const auto* proof = std::get_if<ProofMessage>(&*message); proof != nullptr && !their_nonce_.empty() && !proved_) {
    const std::string expected = net::MakeProof(net::ProofOf::kCoordinator, token, our_nonce_, their_nonce_);
    if (!wire::EqualInConstantTime(proof->proof, expected)) {
      return Fail(who + " does not know the token of this run", true);
    }
    proved_ = true;
    JoinMessage join;
    join.host_name = core_.options.host_name;
    join.address = core_.options.local_addr;
    join.node_rank = core_.options.node_rank;
    join.ranks = core_.options.local_ranks;
    join.min_hosts = core_.options.min_hosts;
    join.max_hosts = core_.options.max_hosts;
    link_->Send(EncodeHostMessage(join));
    return;
  }
  if (const auto* joined = std::get_if<JoinedMessage>(&*message); joined != nullptr && proved_) {
    Outcome outcome;
    outcome.link = std::move(link_);
    outcome.link->SetHandlers({});
    outcome.link->SetMessageLimit(net::kLongestMessage);
    outcome.joined = *joined;
    return Finish(std::move(outcome));
  }
  Fail(who + " sent a message out of order", true);
}

void HostCall::Fail(const std::string& trouble, bool hopeless) {
  Outcome outcome;
  outcome.trouble = trouble;
  outcome.hopeless = hopeless;
  Finish(std::move(outcome));
}

void HostCall::Finish(Outcome outcome) {
  timer_.Cancel();
  const Done done = std::move(done_);
  done(std::move(outcome));
}

}  // namespace fulldeck::nodes
