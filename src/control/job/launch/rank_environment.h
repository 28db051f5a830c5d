// The environment of a rank: the contract that torchrun-style scripts rely on, on top of what the caller of the
// launcher had. Pure. The table of what is set stands in docs/rank-environment.md.
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
  bool cpu_requested = false;  // --devices cpu, or no card at all was found
  bool virtual_local_rank = false;
  bool share_cards = false;   // --share-cards
  std::string torch_plugins;  // --torch-plugin; come before the caller's
  // What the flags say to the adapters in Python ranks: name and value, as AdapterVariables gives them.
  std::vector<std::pair<std::string, std::string>> adapter_variables;
  std::optional<std::string> agent_library;  // absolute path; appended to LD_PRELOAD
  std::optional<std::string> python_hook;    // folder; put first on PYTHONPATH
  // A visible-device list that replaces the caller's, where LOCAL_RANK would otherwise not be the number of the rank's
  // card: name and value, as NarrowedVisibility gives them.
  std::optional<std::pair<std::string, std::string>> visible_devices;
  int board_fd = -1;            // -1: none
  std::string collectives_key;  // secret of the run's ranks; empty: none
};

struct RankContext {
  int local_rank = 0;  // also its record on the board
  int threads = 1;     // OMP_NUM_THREADS unless the caller has one
  // With the torch name that it has under visible_devices; nullptr: on the host's processors.
  const device::Card* card = nullptr;
  std::string error_file;  // absolute; empty: none
  std::string crash_file;  // absolute; empty: none
  std::string stack_file;  // absolute; empty: none
};

// "NAME=value" for exec, sorted, each name once. Variables of the contract that the caller had are replaced, and those
// of an outer run of ours that do not hold for this one are taken out; all others pass.
std::vector<std::string> RankEnvironment(const base::Environment& callers, const AttemptContext& attempt,
                                         const RankContext& rank);

// What these flags say to the adapters. Variables of flags that were not given stay the caller's own.
std::vector<std::pair<std::string, std::string>> AdapterVariables(const LaunchFlags& flags);

// The vendor's visible-device list under which torch numbers `cards` 0, 1, 2 … in this order, written in the words of
// the caller's list where there is one (it may hold UUIDs). Nothing when torch numbers them so already: then the
// caller's list, or its absence, stays untouched. `cards` are of one vendor and have the torch names of the inventory.
std::optional<std::pair<std::string, std::string>> NarrowedVisibility(const base::Environment& callers,
                                                                      const std::vector<device::Card>& cards);

}  // namespace fulldeck::job
