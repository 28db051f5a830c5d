// Leases: while a run uses a card it holds a lock named for the card's serial, so that a second run on this machine, of
// any user, is not put on the same card. The kernel lets go of a lock when its holder dies, however it dies.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "base/unique_fd.h"
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
  int process = 0;  // that took it, and alone gives it back
};

// Not thread safe. Leases end when this object does, and with the process. Descriptors are close-on-exec; a child that
// is forked without exec keeps the lock while it lives, but its copy of this object gives nothing back.
//
// A lease is an flock on a file named for the card, in FolderFor(card). Taking one never waits, so that runs that race
// for the same cards cannot block each other; each card goes to one of them.
class CardLeases {
 public:
  CardLeases() = default;
  ~CardLeases();
  CardLeases(const CardLeases&) = delete;
  CardLeases& operator=(const CardLeases&) = delete;

  // Real cards: $FULLDECK_LEASE_DIR, else /tmp/fulldeck-leases, shared by all users. Simulated ones: beside the state
  // of their simulated server. Made by Take when it is not there.
  static std::string FolderFor(const device::Card& card, const base::Environment& environment);

  // Takes the lease of `card` for `owner`. False when another run has it (also another CardLeases of this process);
  // `held_by` (may be null) then says who, as far as it can be told: any user may have written that line. An error when
  // the lock's file cannot be used.
  base::Result<bool> Take(const device::Card& card, const LeaseOwner& owner, const base::Environment& environment,
                          std::optional<LeaseOwner>* held_by);

  // Gives the lease of `card` (Lease::card) back before the end; nothing when it is not held.
  void GiveBack(const std::string& card);

  const std::vector<Lease>& held() const { return held_; }

 private:
  std::vector<Lease> held_;
};

}  // namespace fulldeck::job
