// Leases: while a run uses a card, it holds a lock that is named for the card's serial, so that a second run on this
// machine, of any user, does not get the same card. The kernel releases the lock when its holder dies, for whatever
// reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/files/unique_fd.h"
#include "base/result.h"
#include "device/card.h"

namespace fulldeck::job {

struct LeaseOwner {
  std::string run_id;
  std::string user;
  int pid = 0;
};

struct Lease {
  std::string card;  // "gcu 3"
  std::string path;
  base::UniqueFd lock;
  int process = 0;     // the process that took it; only this one gives it back
  std::string prefix;  // start of the path of all lease files of this card
  LeaseOwner owner;
};

// Not thread-safe. Leases end with this object and with the process. Descriptors are close-on-exec. A child that is
// forked without exec keeps the lock while it lives, but its copy of this object gives nothing back.
//
// A lease is a file of its run in FolderFor(card), named for the card, with a write lock on it (an open file
// description lock, fcntl). Other users can read the file and see the lock, but cannot lock, change or remove the
// file. They cannot create it first either, because its name has a random part. So the owner of the file is the owner
// of the lease, and other files in the folder are ignored. Runs that race for the same cards cannot block each other;
// each card goes to one of them.
class CardLeases {
 public:
  CardLeases() = default;
  ~CardLeases();
  CardLeases(const CardLeases&) = delete;
  CardLeases& operator=(const CardLeases&) = delete;

  // Real cards: $FULLDECK_LEASE_DIR, otherwise /tmp, shared by all users. It must belong to root or to this user, and
  // must not let users remove files of others. Simulated cards: next to the state of their simulated server. Take
  // creates the folder if it does not exist.
  static std::string FolderFor(const device::Card& card, const base::Environment& environment);

  // Takes the lease of `card` for `owner`. Returns false if another run holds it (or another CardLeases of this
  // process); `held_by` (may be null) then identifies the holder: the user is the owner of the lease's file; run id
  // and pid are what that user wrote (empty and 0 if nothing). Fails if no lease can be created in the folder.
  base::Result<bool> Take(const device::Card& card, const LeaseOwner& owner, const base::Environment& environment,
                          std::optional<LeaseOwner>* held_by);

  // Gives the lease of `card` (Lease::card) back early; does nothing if it is not held.
  void GiveBack(const std::string& card);

  // Updates the time stamp of every lease, because some programs remove old files in /tmp (systemd-tmpfiles after 10
  // days), and creates a lease that was removed again. Call it about once per hour.
  void Refresh();

  const std::vector<Lease>& held() const { return held_; }

 private:
  std::vector<Lease> held_;
};

}  // namespace fulldeck::job
