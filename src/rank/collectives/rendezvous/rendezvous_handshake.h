// The first half of a hand-shake: a connection on which nobody has proven anything yet. Whoever does not prove that it
// knows the key is a unauthenticated_peer: it gets nothing but a random number, and can do no harm.
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
  // Sends the hello `own`, to which it adds a number of its own. `called`: the rank that was called; -1: they
  // called.
  Handshake(base::UniqueFd socket, int called, const HelloMessage& own);

  enum class Progress : std::uint8_t {
    kWaiting,
    kHelloReceived,  // peer_hello() is what they claim to be; Answer or drop them
    kAuthenticated,  // peer_hello() is true; take the socket
    kRejected,       // said something else, or proved the wrong thing
    kEnded,          // closed without having said anything wrong
  };
  // Reads the next thing that has come. Not to be called again after the last three.
  Progress Receive(std::string_view key, std::string_view group);
  // Proves to them that this side knows the key.
  void Answer(std::string_view key, std::string_view group);

  int called() const { return called_; }
  bool answered() const { return answered_; }  // to them this side is a member from then on
  base::TimePoint since() const { return since_; }
  const SocketPeer& who() const { return who_; }
  const HelloMessage& peer_hello() const { return *peer_hello_; }  // once greeted
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
