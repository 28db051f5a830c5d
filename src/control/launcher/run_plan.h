// Everything about a run that is decided before its first rank starts: program, cards with their leases, CPU cores, run
// folder, agent. Made in the supervisor; a rejected run has no side effects except its message.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "device/card.h"
#include "job/cards/card_leases.h"
#include "job/cards/placement.h"
#include "job/launch/cluster.h"
#include "job/launch/launch_flags.h"
#include "launcher/run_directory.h"
#include "net/master_port.h"
#include "wire/exit_codes.h"

namespace fulldeck::launcher {

struct PlannedRank {
  job::RankPlacement placement;
  std::optional<device::Card> card;
  std::vector<int> bound_to;  // CPU cores; empty: not bound
};

// The descriptor of the rank board in a rank: above the numbers that programs use explicitly, below every usual limit.
inline constexpr int kBoardDescriptor = 198;

struct RunPlan {
  job::LaunchFlags flags;
  base::Environment environment;  // of the caller
  std::string run_id;
  std::string host_name;
  std::string user;
  std::vector<std::string> program;  // of a rank, resolved
  std::vector<PlannedRank> ranks;    // indexed by local rank
  bool cpu_requested = false;
  // Name and value of the visible-device variable that makes LOCAL_RANK the index of the rank's card. Set only if the
  // run does not use all cards from the first one on, and never if the caller's own list already has this effect.
  std::optional<std::pair<std::string, std::string>> visible_devices;
  std::optional<std::string> agent_library;
  std::optional<std::string> python_hook;
  std::optional<net::MasterPort> named_port;  // the port that the user chose for rank 0, reserved
  std::optional<RunDirectory> directory;
  // Secret shared by the ranks of this run and unknown to other users; the default key of the collectives. Empty with
  // several launchers and no FULLDECK_TOKEN: ranks of two launchers on one node must find each other, and share no
  // other secret.
  std::string collectives_key;
  std::vector<std::string> notes;  // complete sentences to print before the start
  job::CardLeases leases;
};

struct Refusal {
  wire::ExitCode code = wire::ExitCode::kFailed;
  std::string message;
};

// `flags` must be complete, including the scheduler's values. A rejected run leaves no files or leases behind.
base::Result<std::unique_ptr<RunPlan>> MakeRunPlan(const job::LaunchFlags& flags, const base::Environment& environment,
                                                   const std::optional<job::ClusterPlace>& cluster,
                                                   wire::ExitCode* code_of_refusal);

// One line per rank: its card, serial number, CPU cores, threads.
std::vector<std::string> DescribePlacement(const RunPlan& plan);

// The variables that local rank 0 would get in addition to, or different from, the caller's environment. Omits values
// that are known only at the start (addresses, ports, folders).
std::vector<std::string> DescribeEnvironment(const RunPlan& plan);

// "gcu 3 (serial X)" or "processors of the host".
std::string DescribeCard(const PlannedRank& rank);

}  // namespace fulldeck::launcher
