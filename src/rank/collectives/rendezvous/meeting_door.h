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
#include "collectives/rendezvous/meeting_introduction.h"

namespace fulldeck::collectives {

// Belongs to one thread. Nothing here blocks.
class MeetingDoor {
 public:
  // `own` says rank, size and version of this member.
  MeetingDoor(std::string key, std::string group, const Greeting& own, base::TimePoint deadline);

  // Does what is due: takes the place, calls those of lower rank that are not `here` (by rank), drops the silent.
  base::Result<void> Tend(const std::vector<bool>& here);
  // When something will be due.
  base::TimePoint NextDue(const std::vector<bool>& here) const;
  void WatchIn(std::vector<pollfd>& watched) const;
  // Hears everybody at the door. `watched` is what WatchIn added. Whoever proved itself is let in, and told nothing
  // else yet. Ranks that are `unwanted` (nullptr: none) are turned away before anything is proven to them.
  base::Result<std::vector<Introduction>> Hear(std::span<const pollfd> watched, const std::vector<bool>* unwanted);
  // Frees the place and drops all but those who were answered: to them this side is a member, and they would take a
  // connection that ends without a word for its death. IsAwaited: one of them has yet to prove itself.
  void CloseToNewcomers();
  bool IsAwaited() const;
  // The place is free again, and nobody is called or heard any more.
  void Close();

  // Who listens where `rank` should but does not answer; nothing when nobody does.
  std::optional<pid_t> Unanswering(int rank) const;
  bool has_place() const { return listener_.valid(); }
  pid_t place_taken_by() const { return place_taken_by_; }  // -1: not known to be taken; 0: by whom cannot be seen
  int strangers() const { return strangers_; }
  const SocketPeer& last_stranger() const { return last_stranger_; }
  void CountStranger(const SocketPeer& who);

 private:
  base::Result<void> TakePlace();
  base::Result<void> CallMissing(const std::vector<bool>& here);
  base::Result<void> Call(int rank);
  bool IsCalling(int rank) const;
  base::Result<void> AcceptCallers();
  // Whether it is to be let in. One that is done with has no socket afterwards.
  bool HearCaller(Introduction& caller, const std::vector<bool>* unwanted);

  std::string key_;
  std::string group_;
  Greeting own_;
  base::TimePoint began_;
  base::TimePoint deadline_;
  base::TimePoint next_call_;
  base::UniqueFd listener_;
  bool closed_ = false;                // takes no place and calls nobody any more
  std::vector<Introduction> callers_;  // the one that came first in front
  int next_to_call_ = 0;
  pid_t place_taken_by_ = -1;
  int strangers_ = 0;
  SocketPeer last_stranger_;
};

}  // namespace fulldeck::collectives
