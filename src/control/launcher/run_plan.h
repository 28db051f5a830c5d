// Everything about a run that is decided before its first rank starts: program, cards with their leases, processors,
// run directory, agent. Made in the supervisor; a refusal costs nothing but its message.
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
  std::vector<int> bound_to;  // processors; empty: not bound
};

// The board's descriptor in a rank: above what programs use by number, below every usual limit.
inline constexpr int kBoardDescriptor = 198;

struct RunPlan {
  job::LaunchFlags flags;
  base::Environment environment;  // of the caller
  std::string run_id;
  std::string host_name;
  std::string user;
  std::vector<std::string> program;  // of a rank, resolved
  std::vector<PlannedRank> ranks;    // by local rank
  bool cpu_requested = false;
  // The visible-device list that makes LOCAL_RANK the index of the rank's card, when the run does not use all cards
  // from the first one on: name and value. Never set when the caller's own list already does.
  std::optional<std::pair<std::string, std::string>> visible_devices;
  std::optional<std::string> agent_library;
  std::optional<std::string> python_hook;
  std::optional<net::MasterPort> named_port;  // the port that the user named for rank 0, held
  std::optional<RunDirectory> directory;
  // Secret that the ranks of this run have in common and no other user knows, as the default key of the collectives.
  // Empty for several launchers without FULLDECK_TOKEN: ranks of two of them on one node must meet, and share nothing
  // else that is secret.
  std::string collectives_key;
  std::vector<std::string> notes;  // whole sentences to be said before the start
  job::CardLeases leases;
};

struct Refusal {
  wire::ExitCode code = wire::ExitCode::kFailed;
  std::string message;
};

// `flags` are complete: the cluster's values are in. On a refusal nothing is left behind.
base::Result<std::unique_ptr<RunPlan>> MakeRunPlan(const job::LaunchFlags& flags, const base::Environment& environment,
                                                   const std::optional<job::ClusterPlace>& cluster,
                                                   wire::ExitCode* code_of_refusal);

// One line a rank: which card, serial, processors, threads.
std::vector<std::string> DescribePlacement(const RunPlan& plan);

// What local rank 0 would find in its environment beyond the caller's, or different from it. What is known only at the
// start (addresses, ports, folders) is left out.
std::vector<std::string> DescribeEnvironment(const RunPlan& plan);

// "gcu 3 (serial X)" or "processors of the host".
std::string DescribeCard(const PlannedRank& rank);

}  // namespace fulldeck::launcher
