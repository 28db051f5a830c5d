// The first half of a hand-shake: a connection on which nobody has proven anything yet. Whoever does not prove that it
// knows the key is a stranger: it gets nothing but a random number, and can do no harm.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "collectives/rendezvous/meeting_messages.h"
#include "collectives/rendezvous/meeting_socket.h"

namespace fulldeck::collectives {

// Belongs to one thread.
class Introduction {
 public:
  // Sends the greeting `own`, to which it adds a number of its own. `called`: the rank that was called; -1: they
  // called.
  Introduction(base::UniqueFd socket, int called, const Greeting& own);

  enum class Progress : std::uint8_t {
    kWaiting,
    kGreeted,   // theirs() is what they claim to be; Answer or drop them
    kProven,    // theirs() is true; take the socket
    kStranger,  // said something else, or proved the wrong thing
    kEnded,     // closed without having said anything wrong
  };
  // Reads the next thing that has come. Not to be called again after the last three.
  Progress Hear(std::string_view key, std::string_view group);
  // Proves to them that this side knows the key.
  void Answer(std::string_view key, std::string_view group);

  int called() const { return called_; }
  bool answered() const { return answered_; }  // to them this side is a member from then on
  base::TimePoint since() const { return since_; }
  const SocketPeer& who() const { return who_; }
  const Greeting& theirs() const { return *theirs_; }  // once greeted
  int socket() const { return socket_.get(); }         // -1 once it is taken
  base::UniqueFd TakeSocket() { return std::move(socket_); }

 private:
  base::UniqueFd socket_;
  int called_;
  base::TimePoint since_;
  SocketPeer who_;
  Greeting own_;
  std::optional<Greeting> theirs_;
  bool answered_ = false;
};

}  // namespace fulldeck::collectives
