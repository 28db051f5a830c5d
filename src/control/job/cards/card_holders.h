// Who holds one card, for people who want it free.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/inventory.h"
#include "job/runs/run_registry.h"
#include "wire/process_identity.h"

namespace fulldeck::job {

// "gcu:3", "gcu 3", "gcu3", or "3" where all cards are of one kind. The error lists the cards that there are.
base::Result<const device::Card*> FindCard(const device::Inventory& inventory, std::string_view text);

struct CardHolder {
  device::Holder holder;
  wire::ProcessIdentity process;      // as it is now; stopping it later hits no other
  std::optional<std::string> run_id;  // the run of `runs` that it is a rank of
  // False where the driver counts pids as the host does and this is a container, and the process cannot be seen to have
  // the card's node open: it may be another one. Not to be stopped.
  bool certain = true;
  bool is_caller = false;  // this process or one that it was started from: not to be stopped
};

// Whether pids here are those of the host: drivers tell these, also inside a container.
bool HasPidsOfTheHost();

// Whether a process can be seen to have one of the card's device nodes open.
bool HasNodeOpen(int pid, const device::Card& card);

// Those that still live. `runs`: RunRegistry::List. An error when nobody can tell who holds the card.
base::Result<std::vector<CardHolder>> HoldersOf(const device::Card& card, const std::vector<RunRegistry::Entry>& runs,
                                                bool has_pids_of_the_host = HasPidsOfTheHost());

}  // namespace fulldeck::job
