// Which processes hold one card, for the commands that free it.
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

// "gcu:3", "gcu 3", "gcu3", or "3" if all cards are of one kind. The error lists the existing cards.
base::Result<const device::Card*> FindCard(const device::Inventory& inventory, std::string_view text);

struct CardHolder {
  device::Holder holder;
  wire::ProcessIdentity process;      // its current identity; stopping it later cannot hit another process
  std::optional<std::string> run_id;  // the run of `runs` of which it is a rank
  // False if pids may be ambiguous: the driver reports pids of the machine, this is a container, and the process is
  // not seen to have the card's device node open. It may be a different process, so it must not be stopped.
  bool certain = true;
  bool is_caller = false;  // this process or one of its ancestors: must not be stopped
};

// Whether pids here are those of the machine's first pid namespace. Drivers report those, even inside a container.
bool HasPidsOfTheHost();

// Whether a process is seen to have one of the card's device nodes open.
bool HasNodeOpen(int pid, const device::Card& card);

// The holders that still run. `runs`: RunRegistry::List. Fails if no source can report who holds the card.
base::Result<std::vector<CardHolder>> HoldersOf(const device::Card& card, const std::vector<RunRegistry::Entry>& runs,
                                                bool has_pids_of_the_host = HasPidsOfTheHost());

}  // namespace fulldeck::job
