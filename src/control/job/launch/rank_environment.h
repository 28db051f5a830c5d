// The environment of a rank: the contract on which torchrun-style scripts rely, added to the environment of the
// launcher's caller. Pure. docs/rank-environment.md lists the variables.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "device/card.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {

// The same for every rank of an attempt.
struct AttemptContext {
  std::string run_id;
  std::string run_dir;  // absolute
  std::string role = "default";
  std::string master_addr;  // an address, not a name
  int master_port = 0;
  int attempt = 0;
  int max_restarts = 0;
  int local_world_size = 1;
  int world_size = 1;
  int first_rank = 0;  // RANK of local rank 0
  int group_rank = 0;
  int group_world_size = 1;
  bool cpu_requested = false;  // --devices cpu, or no card was found
  bool virtual_local_rank = false;
  bool share_cards = false;   // --share-cards
  std::string torch_plugins;  // --torch-plugin; precede the caller's
  // Settings that the flags pass to the adapters in Python ranks: name and value, as returned by AdapterVariables.
  std::vector<std::pair<std::string, std::string>> adapter_variables;
  std::optional<std::string> agent_library;  // absolute path; appended to LD_PRELOAD
  std::optional<std::string> python_hook;    // folder; prepended to PYTHONPATH
  // A visible-device list that replaces the caller's if LOCAL_RANK would otherwise not be the number of the rank's
  // card: name and value, as returned by NarrowedVisibility.
  std::optional<std::pair<std::string, std::string>> visible_devices;
  int board_fd = -1;            // -1: none
  std::string collectives_key;  // secret of the run's ranks; empty: none
};

struct RankContext {
  int local_rank = 0;  // also the index of its record on the board
  int threads = 1;     // OMP_NUM_THREADS unless the caller has set it
  // With the torch name that it has under visible_devices; nullptr: on the node's CPUs.
  const device::Card* card = nullptr;
  std::string error_file;  // absolute; empty: none
  std::string crash_file;  // absolute; empty: none
  std::string stack_file;  // absolute; empty: none
};

// "NAME=value" for exec, sorted, each name once. Variables of the contract replace the caller's. Variables of an
// outer fulldeck run that do not apply to this one are removed. All others are passed on.
std::vector<std::string> RankEnvironment(const base::Environment& callers, const AttemptContext& attempt,
                                         const RankContext& rank);

// Settings of these flags for the adapters. Variables of flags that were not given keep the caller's value.
std::vector<std::pair<std::string, std::string>> AdapterVariables(const LaunchFlags& flags);

// The vendor's visible-device list under which torch numbers `cards` 0, 1, 2 … in this order, with the entries of the
// caller's list if there is one (it may contain UUIDs). nullopt if torch already numbers them so: then the caller's
// list, or its absence, stays unchanged. `cards` are of one vendor and have the torch names of the inventory.
std::optional<std::pair<std::string, std::string>> NarrowedVisibility(const base::Environment& callers,
                                                                      const std::vector<device::Card>& cards);

}  // namespace fulldeck::job
