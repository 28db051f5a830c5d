// The first half of a handshake: a connection that is not authenticated yet. A peer that does not prove that it knows
// the key is an unauthenticated peer: it gets only a random number, and can do no harm.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "collectives/rendezvous/rendezvous_messages.h"
#include "collectives/rendezvous/rendezvous_socket.h"

namespace fulldeck::collectives {

// Belongs to one thread.
class Handshake {
 public:
  // Sends the hello `own` with a fresh nonce. `called`: the rank that this side connected to; -1: the peer connected.
  Handshake(base::UniqueFd socket, int called, const HelloMessage& own);

  enum class Progress : std::uint8_t {
    kWaiting,
    kHelloReceived,  // peer_hello() is unverified; call Answer or drop the connection
    kAuthenticated,  // peer_hello() is verified; take the socket
    kRejected,       // an invalid message or a wrong proof
    kEnded,          // closed without an invalid message
  };
  // Reads the next message, if any. Must not be called again after one of the last three results.
  Progress Receive(std::string_view key, std::string_view group);
  // Proves to the peer that this side knows the key.
  void Answer(std::string_view key, std::string_view group);

  int called() const { return called_; }
  bool answered() const { return answered_; }  // from then on, the peer takes this side for a member
  base::TimePoint since() const { return since_; }
  const SocketPeer& who() const { return who_; }
  const HelloMessage& peer_hello() const { return *peer_hello_; }  // valid from kHelloReceived on
  int socket() const { return socket_.get(); }                     // -1 once it is taken
  base::UniqueFd TakeSocket() { return std::move(socket_); }

 private:
  base::UniqueFd socket_;
  int called_;
  base::TimePoint since_;
  SocketPeer who_;
  HelloMessage own_hello_;
  std::optional<HelloMessage> peer_hello_;
  bool answered_ = false;
};

}  // namespace fulldeck::collectives
