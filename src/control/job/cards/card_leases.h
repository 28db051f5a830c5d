// Leases: while a run uses a card it holds a lock named for the card's serial, so that a second run on this machine, of
// any user, is not put on the same card. The kernel lets go of a lock when its holder dies, however it dies.
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
  int process = 0;     // that took it, and alone gives it back
  std::string prefix;  // what the path begins with for this card
  LeaseOwner owner;
};

// Not thread safe. Leases end when this object does, and with the process. Descriptors are close-on-exec; a child that
// is forked without exec keeps the lock while it lives, but its copy of this object gives nothing back.
//
// A lease is a file of the run's own in FolderFor(card), named for the card and with a write lock on it (an open file
// description lock, fcntl). Other users can read the file and see the lock, but cannot lock, change or remove it, and
// cannot be there first: the name has a random part. So whose a lease is is known from the owner of the file, and what
// else lies in the folder is passed over. Runs that race for the same cards cannot block each other; each card goes to
// one of them.
class CardLeases {
 public:
  CardLeases() = default;
  ~CardLeases();
  CardLeases(const CardLeases&) = delete;
  CardLeases& operator=(const CardLeases&) = delete;

  // Real cards: $FULLDECK_LEASE_DIR, else /tmp, shared by all users; it must belong to root or to this user, and let
  // nobody remove files of others. Simulated ones: next to the state of their simulated server. Made by Take when it is
  // not there.
  static std::string FolderFor(const device::Card& card, const base::Environment& environment);

  // Takes the lease of `card` for `owner`. False when another run has it (also another CardLeases of this process);
  // `held_by` (may be null) then says who: the user is the owner of the lease's file, run id and pid are what that user
  // wrote (empty and 0 when nothing). An error when no lease can be made in the folder.
  base::Result<bool> Take(const device::Card& card, const LeaseOwner& owner, const base::Environment& environment,
                          std::optional<LeaseOwner>* held_by);

  // Gives the lease of `card` (Lease::card) back before the end; nothing when it is not held.
  void GiveBack(const std::string& card);

  // Makes every lease as new, for programs that remove old files of /tmp (systemd-tmpfiles does after 10 days), and
  // makes one that was removed again. To be called every hour or so.
  void Refresh();

  const std::vector<Lease>& held() const { return held_; }

 private:
  std::vector<Lease> held_;
};

}  // namespace fulldeck::job
