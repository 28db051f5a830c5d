// Where a member is found and from where it finds others: it listens in its own place, calls the members of lower rank
// until they are there, and lets in whoever proves that it knows the key. Strangers are kept out and counted.
#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "collectives/rendezvous/rendezvous_handshake.h"

namespace fulldeck::collectives {

// Belongs to one thread. Nothing here blocks.
class RendezvousListener {
 public:
  // `own` says rank, size and version of this member.
  RendezvousListener(std::string key, std::string group, const HelloMessage& own, base::TimePoint deadline);

  // Does what is due: takes the place, calls those of lower rank that are not `here` (by rank), drops the silent.
  base::Result<void> Advance(const std::vector<bool>& here);
  // When something will be due.
  base::TimePoint NextDue(const std::vector<bool>& here) const;
  void AddPollFds(std::vector<pollfd>& watched) const;
  // Hears everybody at the door. `watched` is what AddPollFds added. Whoever proved itself is let in, and told nothing
  // else yet. Ranks that are `excluded` (nullptr: none) are turned away before anything is proven to them.
  base::Result<std::vector<Handshake>> Receive(std::span<const pollfd> watched, const std::vector<bool>* excluded);
  // Frees the place and drops all but those who were answered: to them this side is a member, and they would take a
  // connection that ends without a word for its death. HasPending: one of them has yet to prove itself.
  void StopAccepting();
  bool HasPending() const;
  // The place is free again, and nobody is called or heard any more.
  void Close();

  // Who listens where `rank` should but does not answer; nothing when nobody does.
  std::optional<pid_t> UnresponsiveAt(int rank) const;
  bool is_listening() const { return listener_.valid(); }
  pid_t address_taken_by() const { return address_taken_by_; }  // -1: not known to be taken; 0: by whom cannot be seen
  int unauthenticated_peers() const { return unauthenticated_peers_; }
  const SocketPeer& last_unauthenticated() const { return last_unauthenticated_; }
  void CountUnauthenticated(const SocketPeer& who);

 private:
  base::Result<void> BindAddress();
  base::Result<void> ConnectToMissing(const std::vector<bool>& here);
  base::Result<void> Connect(int rank);
  bool IsConnectingTo(int rank) const;
  base::Result<void> AcceptConnections();
  // Whether it is to be let in. One that is done with has no socket afterwards.
  bool AdvanceHandshake(Handshake& handshake, const std::vector<bool>* excluded);

  std::string key_;
  std::string group_;
  HelloMessage own_hello_;
  base::TimePoint began_;
  base::TimePoint deadline_;
  base::TimePoint next_connect_;
  base::UniqueFd listener_;
  bool closed_ = false;                // takes no place and calls nobody any more
  std::vector<Handshake> handshakes_;  // the one that came first in front
  int next_rank_ = 0;
  pid_t address_taken_by_ = -1;
  int unauthenticated_peers_ = 0;
  SocketPeer last_unauthenticated_;
};

}  // namespace fulldeck::collectives
