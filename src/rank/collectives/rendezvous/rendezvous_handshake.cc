#include "collectives/rendezvous/rendezvous_handshake.h"

#include <string>
#include <utility>

#include "wire/sha256.h"

namespace fulldeck::collectives {
namespace {

std::string_view Text(const wire::Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Handshake::Handshake(base::UniqueFd socket, int called, const HelloMessage& own)
    : socket_(std::move(socket)),
      called_(called),
      since_(base::SteadyClock::Instance().Now()),
      who_(PeerOf(socket_.get())),
      own_hello_(own) {
  own_hello_.nonce = MakeRendezvousNonce();
  // If sending fails, the peer is gone, and Receive will report that.
  SendPacket(socket_.get(), Encode(own_hello_));
}

Handshake::Progress Handshake::Receive(std::string_view key, std::string_view group) {
  const ReceivedPacket packet = ReceivePacket(socket_.get(), sizeof(HelloMessage), 0);
  if (packet.kind == ReceivedPacket::Kind::kNothingYet) return Progress::kWaiting;
  if (packet.kind == ReceivedPacket::Kind::kEnd) return Progress::kEnded;
  if (!peer_hello_) {
    peer_hello_ = DecodeHello(packet.bytes);
    // Reject an echo of the own hello: it could otherwise be answered with an echo of the own proof.
    return peer_hello_ && peer_hello_->nonce != own_hello_.nonce ? Progress::kHelloReceived : Progress::kRejected;
  }
  const auto message = Decode<ProofMessage>(packet.bytes);
  if (!message) return Progress::kRejected;
  const wire::Sha256Digest expected = MakeRendezvousProof(key, group, *peer_hello_, own_hello_);
  return wire::EqualInConstantTime(Text(message->proof), Text(expected)) ? Progress::kAuthenticated
                                                                         : Progress::kRejected;
}

void Handshake::Answer(std::string_view key, std::string_view group) {
  answered_ = true;
  SendPacket(socket_.get(), Encode(ProofMessage{.proof = MakeRendezvousProof(key, group, own_hello_, *peer_hello_)}));
}

}  // namespace fulldeck::collectives
