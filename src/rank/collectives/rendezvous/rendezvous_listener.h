// How a member is reached and reaches others: it listens on its own address, connects to the lower ranks until they are
// there, and accepts every peer that proves that it knows the key. Other peers are rejected and counted.
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
  // `own` has the rank, size and version of this member.
  RendezvousListener(std::string key, std::string group, const HelloMessage& own, base::TimePoint deadline);

  // Does what is due: binds the address, connects to lower ranks that are not `here` (by rank), drops silent peers.
  base::Result<void> Advance(const std::vector<bool>& here);
  // When the next action is due.
  base::TimePoint NextDue(const std::vector<bool>& here) const;
  void AddPollFds(std::vector<pollfd>& watched) const;
  // Handles all pending connections. `watched` is what AddPollFds added. Returns the authenticated peers; nothing else
  // has been sent to them yet. `excluded` ranks (nullptr: none) are rejected before anything is proved to them.
  base::Result<std::vector<Handshake>> Receive(std::span<const pollfd> watched, const std::vector<bool>* excluded);
  // Releases the address and drops all peers except those that were answered: they take this side for a member, and
  // would take a silent close for its death. HasPending: one of them is not authenticated yet.
  void StopAccepting();
  bool HasPending() const;
  // Releases the address, and closes all connections.
  void Close();

  // The process that listens at the address of `rank` but does not answer; nullopt if there is none.
  std::optional<pid_t> UnresponsiveAt(int rank) const;
  bool is_listening() const { return listener_.valid(); }
  pid_t address_taken_by() const { return address_taken_by_; }  // -1: none known; 0: a process that is not visible
  int unauthenticated_peers() const { return unauthenticated_peers_; }
  const SocketPeer& last_unauthenticated() const { return last_unauthenticated_; }
  void CountUnauthenticated(const SocketPeer& who);

 private:
  base::Result<void> BindAddress();
  base::Result<void> ConnectToMissing(const std::vector<bool>& here);
  base::Result<void> Connect(int rank);
  bool IsConnectingTo(int rank) const;
  base::Result<void> AcceptConnections();
  // Whether it is authenticated. A finished handshake has no socket afterwards.
  bool AdvanceHandshake(Handshake& handshake, const std::vector<bool>* excluded);

  std::string key_;
  std::string group_;
  HelloMessage own_hello_;
  base::TimePoint began_;
  base::TimePoint deadline_;
  base::TimePoint next_connect_;
  base::UniqueFd listener_;
  bool closed_ = false;                // binds no address and connects to no one any more
  std::vector<Handshake> handshakes_;  // oldest first
  int next_rank_ = 0;
  pid_t address_taken_by_ = -1;
  int unauthenticated_peers_ = 0;
  SocketPeer last_unauthenticated_;
};

}  // namespace fulldeck::collectives
