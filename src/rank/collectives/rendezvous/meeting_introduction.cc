#include "collectives/rendezvous/meeting_introduction.h"

#include <string>
#include <utility>

#include "wire/sha256.h"

namespace fulldeck::collectives {
namespace {

std::string_view Text(const wire::Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Introduction::Introduction(base::UniqueFd socket, int called, const Greeting& own)
    : socket_(std::move(socket)),
      called_(called),
      since_(base::SteadyClock::Instance().Now()),
      who_(PeerOf(socket_.get())),
      own_(own) {
  own_.nonce = MakeMeetingNonce();
  // If it cannot be sent, the other end is gone, and that is what will be heard.
  SendPacket(socket_.get(), Encode(own_));
}

Introduction::Progress Introduction::Hear(std::string_view key, std::string_view group) {
  const ReceivedPacket packet = ReceivePacket(socket_.get(), sizeof(Greeting), 0);
  if (packet.kind == ReceivedPacket::Kind::kNothingYet) return Progress::kWaiting;
  if (packet.kind == ReceivedPacket::Kind::kEnd) return Progress::kEnded;
  if (!theirs_) {
    theirs_ = DecodeGreeting(packet.bytes);
    // One's own greeting sent back could be answered with one's own proof.
    return theirs_ && theirs_->nonce != own_.nonce ? Progress::kGreeted : Progress::kStranger;
  }
  const auto message = Decode<ProofMessage>(packet.bytes);
  if (!message) return Progress::kStranger;
  const wire::Sha256Digest expected = MakeMeetingProof(key, group, *theirs_, own_);
  return wire::EqualInConstantTime(Text(message->proof), Text(expected)) ? Progress::kProven : Progress::kStranger;
}

void Introduction::Answer(std::string_view key, std::string_view group) {
  answered_ = true;
  SendPacket(socket_.get(), Encode(ProofMessage{.proof = MakeMeetingProof(key, group, own_, *theirs_)}));
}

}  // namespace fulldeck::collectives
