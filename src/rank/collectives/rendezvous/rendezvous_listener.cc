#include "collectives/rendezvous/rendezvous_listener.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fulldeck::collectives {
namespace {

using namespace std::chrono_literals;

// A connection that is not authenticated after this time is closed. A member that was only slow connects again.
constexpr base::Duration kHandshakeTimeout = 5s;
constexpr int kMaxUnauthenticated = 64;
// How long another holder of this member's address may be a remnant of the previous rendezvous.
constexpr base::Duration kAddressHolderTimeout = 1s;
// With hundreds of missing members, connecting to all of them at the same time would take all CPU time of the machine.
constexpr int kMaxConnectsAtOnce = 16;

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

}  // namespace

RendezvousListener::RendezvousListener(std::string key, std::string group, const HelloMessage& own,
                                       base::TimePoint deadline)
    : key_(std::move(key)),
      group_(std::move(group)),
      own_hello_(own),
      began_(Now()),
      deadline_(deadline),
      next_connect_(began_) {}

base::Result<void> RendezvousListener::Advance(const std::vector<bool>& here) {
  std::erase_if(handshakes_, [&](const Handshake& handshake) {
    const bool silent = Now() - handshake.since() > kHandshakeTimeout;
    if (silent && handshake.called() < 0) CountUnauthenticated(handshake.who());
    return silent;
  });
  if (Now() < next_connect_) return {};
  // Often while all members are starting, rarely when one takes minutes.
  next_connect_ = Now() + std::clamp<base::Duration>((Now() - began_) / 16, 200us, 10ms);
  if (!is_listening()) {
    if (auto taken = BindAddress(); !taken) return taken;
  }
  return is_listening() ? ConnectToMissing(here) : base::Result<void>();
}

base::TimePoint RendezvousListener::NextDue(const std::vector<bool>& here) const {
  base::TimePoint due = base::TimePoint::max();
  bool calls = !closed_ && !is_listening();
  for (int rank = 0; rank < own_hello_.rank; ++rank)
    calls = calls || (!closed_ && !here[static_cast<std::size_t>(rank)]);
  if (calls) due = next_connect_;
  for (const Handshake& handshake : handshakes_) due = std::min(due, handshake.since() + kHandshakeTimeout + 1ms);
  return due;
}

base::Result<void> RendezvousListener::BindAddress() {
  auto listener = ListenAt(RendezvousAddress(key_, group_, own_hello_.rank), own_hello_.size + kMaxUnauthenticated);
  if (listener) {
    listener_ = *std::move(listener);
    address_taken_by_ = -1;
    std::erase_if(handshakes_, [&](const Handshake& handshake) { return handshake.called() == own_hello_.rank; });
    return {};
  }
  if (listener.error().system_error != EADDRINUSE) return listener.error();
  const base::Duration timeout = std::min<base::Duration>(kAddressHolderTimeout, (deadline_ - began_) / 2);
  // If the holder can prove that it belongs to this group, the rank is a duplicate.
  return Now() - began_ > timeout && !IsConnectingTo(own_hello_.rank) ? Connect(own_hello_.rank) : base::Result<void>();
}

bool RendezvousListener::IsConnectingTo(int rank) const {
  return std::any_of(handshakes_.begin(), handshakes_.end(),
                     [&](const auto& handshake) { return handshake.called() == rank; });
}

std::optional<pid_t> RendezvousListener::UnresponsiveAt(int rank) const {
  for (const Handshake& handshake : handshakes_) {
    if (handshake.called() == rank) return handshake.who().pid;
  }
  return std::nullopt;
}

base::Result<void> RendezvousListener::ConnectToMissing(const std::vector<bool>& here) {
  int calls = 0;
  for (int i = 0; i < own_hello_.rank && calls < kMaxConnectsAtOnce; ++i) {
    const int rank = std::exchange(next_rank_, (next_rank_ + 1) % own_hello_.rank);
    if (here[static_cast<std::size_t>(rank)] || IsConnectingTo(rank)) continue;
    if (auto called = Connect(rank); !called) return called;
    ++calls;
  }
  return {};
}

base::Result<void> RendezvousListener::Connect(int rank) {
  auto socket = ConnectTo(RendezvousAddress(key_, group_, rank));
  if (socket) {
    handshakes_.emplace_back(*std::move(socket), rank, own_hello_);
    if (rank == own_hello_.rank) address_taken_by_ = handshakes_.back().who().pid;
    return {};
  }
  const int reason = socket.error().system_error;
  const bool comes_later = reason == ECONNREFUSED || reason == EAGAIN || reason == EINTR;
  return comes_later ? base::Result<void>() : socket.error();
}

base::Result<void> RendezvousListener::AcceptConnections() {
  while (true) {
    auto socket = AcceptFrom(listener_.get());
    if (!socket) {
      return socket.error().system_error == EAGAIN ? base::Result<void>() : base::Result<void>(socket.error());
    }
    if (handshakes_.size() >= static_cast<std::size_t>(own_hello_.size) + kMaxUnauthenticated) {
      CountUnauthenticated(handshakes_.front().who());
      handshakes_.erase(handshakes_.begin());
    }
    handshakes_.emplace_back(*std::move(socket), -1, own_hello_);
  }
}

void RendezvousListener::CountUnauthenticated(const SocketPeer& who) {
  ++unauthenticated_peers_;
  last_unauthenticated_ = who;
}

void RendezvousListener::AddPollFds(std::vector<pollfd>& watched) const {
  for (const Handshake& handshake : handshakes_) watched.push_back({handshake.socket(), POLLIN, 0});
  watched.push_back({listener_.get(), POLLIN, 0});
}

bool RendezvousListener::AdvanceHandshake(Handshake& handshake, const std::vector<bool>* excluded) {
  while (true) {
    switch (handshake.Receive(key_, group_)) {
      case Handshake::Progress::kWaiting:
        return false;
      case Handshake::Progress::kHelloReceived: {
        const std::int32_t rank = handshake.peer_hello().rank;
        const bool known = excluded != nullptr && rank >= 0 && rank < own_hello_.size;
        if (known && (*excluded)[static_cast<std::size_t>(rank)]) break;
        handshake.Answer(key_, group_);
        continue;
      }
      case Handshake::Progress::kAuthenticated:
        return true;
      case Handshake::Progress::kRejected:
        CountUnauthenticated(handshake.who());
        break;
      case Handshake::Progress::kEnded:
        // A listener of the previous rendezvous, or a peer that died: the right one will be connected to, or will
        // connect again.
        break;
    }
    handshake.TakeSocket();
    return false;
  }
}

base::Result<std::vector<Handshake>> RendezvousListener::Receive(std::span<const pollfd> watched,
                                                                 const std::vector<bool>* excluded) {
  std::vector<Handshake> proven;
  for (std::size_t i = 0; i < handshakes_.size(); ++i) {
    if (watched[i].revents != 0 && AdvanceHandshake(handshakes_[i], excluded))
      proven.push_back(std::move(handshakes_[i]));
  }
  std::erase_if(handshakes_, [](const Handshake& handshake) { return handshake.socket() < 0; });
  if (watched.back().revents != 0) {
    if (auto accepted = AcceptConnections(); !accepted) return accepted.error();
  }
  return proven;
}

void RendezvousListener::StopAccepting() {
  closed_ = true;
  listener_.Reset();
  std::erase_if(handshakes_, [](const Handshake& handshake) { return !handshake.answered(); });
}

bool RendezvousListener::HasPending() const {
  return std::any_of(handshakes_.begin(), handshakes_.end(),
                     [](const auto& handshake) { return handshake.answered(); });
}

void RendezvousListener::Close() {
  closed_ = true;
  listener_.Reset();
  handshakes_.clear();
}

}  // namespace fulldeck::collectives
