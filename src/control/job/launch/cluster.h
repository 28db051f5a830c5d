// What a cluster's manager says about this launcher: Slurm, OpenMPI, MPICH and Kubernetes tell the number of launchers,
// which of them this is, and where the first one is, through the environment. Pure; docs/cluster-managers.md has the
// variables, and what wins over what.
//
// Every launcher is one host of the group, also when several of them run on one machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {

struct ClusterPlace {
  std::string manager;           // "Slurm", "OpenMPI", "MPICH", "Kubernetes"
  std::optional<int> launchers;  // how many launchers this job has in all; Kubernetes does not tell
  int launcher = 0;              // which of them this is
  int local_launchers = 1;       // several on this host share its cards
  int local_launcher = 0;
  std::optional<std::string> first_host;  // name or address; absent when the manager does not tell
  std::optional<int> port;                // the same in every launcher of the job, derived from the job's id
  std::optional<std::string> job_id;      // serves as token where the user gave none
};

// Nothing outside a cluster, and nothing when the manager started a single launcher: also in a batch script of Slurm
// that runs the launcher without srun, whatever number of tasks the job has. An error for values that contradict each
// other.
base::Result<std::optional<ClusterPlace>> ReadCluster(const base::Environment& environment);

// A sentence for a launcher that is alone in a Slurm job of several hosts, which is rarely meant; nothing else. To be
// said when `--nnodes` is not given.
std::optional<std::string> HintForLoneLauncher(const base::Environment& environment);

// "host[0-1,4],login" gives host0 host1 host4 login; "n[08-10]" keeps the zeros. At most 65536 names.
base::Result<std::vector<std::string>> ExpandHostList(std::string_view text);

// The `position`th of Slurm's counts: "2(x3),1" is 2 2 2 1. Nothing when it is not such a list or too short.
std::optional<int> TasksOfNode(std::string_view text, int position);

// Fills what the user left open from the cluster: number of hosts, node rank, rendezvous point, token. What the user
// gave wins; a contradiction (--nnodes 4 under 2 launchers) is an error. With --standalone every launcher is a job of
// its own, and only its share of the cards comes from the cluster.
base::Result<void> ApplyCluster(const ClusterPlace& place, LaunchFlags& flags);

}  // namespace fulldeck::job
