#include "nodes/node_connector.h"

#include <cerrno>
#include <cstring>

#include "net/token_auth.h"
#include "wire/sha256.h"

namespace fulldeck::nodes {

NodeConnector::NodeConnector(NodeGroupContext& context, const net::HostAddress& address, Done done)
    : context_(context), address_(address), done_(std::move(done)), timer_(context.loop) {
  auto connecting = net::BeginConnect(address_);
  if (!connecting) {
    const std::string error_text = connecting.error().message;
    timer_.Set(base::Duration(0), [this, error_text] { Fail(error_text); });
    return;
  }
  connecting_ = std::move(*connecting);
  const auto watch = context_.loop.WhenWritable(connecting_.get(), [this] { Connected(); });
  if (watch) watch_ = *watch;
  timer_.Set(context_.options.handshake_timeout, [this] { Fail(address_.WithPort() + " does not answer"); });
}

NodeConnector::~NodeConnector() {
  context_.loop.Remove(watch_);
}

void NodeConnector::Connected() {
  context_.loop.Remove(watch_);
  watch_ = 0;
  const int error = net::ConnectOutcome(connecting_.get());
  if (error != 0) return Fail("cannot connect to " + address_.WithPort() + ": " + std::strerror(error));
  net::TuneConnection(connecting_.get(), context_.options.silence_limit);
  timer_.Set(context_.options.handshake_timeout, [this] {
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
        // The coordinator may have sent first and not know our version yet; the header of this message contains it.
        link_->Send(EncodeNodeMessage(RefusedMessage{end.reason}));
        return Fail("the launcher on " + address_.WithPort() + ": " + end.reason, true);
    }
  };
  link_ = std::make_unique<net::MessageLink>(context_.loop, std::move(connecting_), kHandshakeMessageLimit,
                                             std::move(handlers));
  our_nonce_ = net::MakeNonce();
  link_->Send(EncodeNodeMessage(HelloMessage{our_nonce_}));
}

void NodeConnector::OnMessage(std::string_view text) {
  const auto message = DecodeNodeMessage(text);
  const std::string who = "the launcher on " + address_.WithPort();
  if (!message) return Fail(who + " sent " + message.error().message, true);
  if (const auto* refused = std::get_if<RefusedMessage>(&*message)) {
    return Fail(who + " turned this host away: " + refused->reason, true);
  }
  const std::string& token = context_.options.token;
  if (const auto* challenge = std::get_if<ChallengeMessage>(&*message); challenge != nullptr && their_nonce_.empty()) {
    their_nonce_ = challenge->nonce;
    link_->Send(
        EncodeNodeMessage(ProofMessage{net::MakeProof(net::ProofRole::kMember, token, our_nonce_, their_nonce_)}));
    return;
  }
  if (const auto* proof = std::get_if<ProofMessage>(&*message);
      proof != nullptr && !their_nonce_.empty() && !authenticated_) {
    const std::string expected = net::MakeProof(net::ProofRole::kCoordinator, token, our_nonce_, their_nonce_);
    if (!wire::EqualInConstantTime(proof->proof, expected)) {
      return Fail(who + " does not know the token of this run", true);
    }
    authenticated_ = true;
    JoinMessage join;
    join.host_name = context_.options.host_name;
    join.address = context_.options.local_addr;
    join.node_rank = context_.options.node_rank;
    join.ranks = context_.options.local_ranks;
    join.min_nodes = context_.options.min_nodes;
    join.max_nodes = context_.options.max_nodes;
    link_->Send(EncodeNodeMessage(join));
    return;
  }
  if (const auto* joined = std::get_if<JoinedMessage>(&*message); joined != nullptr && authenticated_) {
    Outcome outcome;
    outcome.link = std::move(link_);
    outcome.link->SetHandlers({});
    outcome.link->SetMessageLimit(net::kLongestMessage);
    outcome.joined = *joined;
    return Finish(std::move(outcome));
  }
  Fail(who + " sent a message out of order", true);
}

void NodeConnector::Fail(const std::string& error_text, bool is_permanent) {
  Outcome outcome;
  outcome.error_text = error_text;
  outcome.is_permanent = is_permanent;
  Finish(std::move(outcome));
}

void NodeConnector::Finish(Outcome outcome) {
  timer_.Cancel();
  const Done done = std::move(done_);
  done(std::move(outcome));
}

}  // namespace fulldeck::nodes
