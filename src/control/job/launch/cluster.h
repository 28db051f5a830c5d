// What a scheduler or MPI launcher reports about this launcher through the environment: Slurm, OpenMPI, MPICH and
// Kubernetes set the number of launchers, the number of this one, and the location of the first one. Pure;
// docs/cluster-managers.md lists the variables and their precedence.
//
// Every launcher is one node of the group, even if several of them run on one machine.
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
  std::optional<int> launchers;  // total number of launchers of this job; Kubernetes does not report it
  int launcher = 0;              // the number of this one
  int local_launchers = 1;       // several on this machine share its cards
  int local_launcher = 0;
  std::optional<std::string> first_host;  // name or address; absent if the manager does not report it
  std::optional<int> port;                // the same in every launcher of the job, derived from the job's id
  std::optional<std::string> job_id;      // serves as token if the user gave none
};

// nullopt outside a cluster, and if the manager started a single launcher: also in a batch script of Slurm that runs
// the launcher without srun, whatever number of tasks the job has. Fails for values that contradict each other.
base::Result<std::optional<ClusterPlace>> ReadCluster(const base::Environment& environment);

// A hint for a launcher that is the only one in a Slurm job of several nodes, which is rarely intended; otherwise
// nullopt. To be logged if `--nnodes` is not given.
std::optional<std::string> HintForLoneLauncher(const base::Environment& environment);

// "host[0-1,4],login" gives host0 host1 host4 login; "n[08-10]" keeps leading zeros. At most 65536 names.
base::Result<std::vector<std::string>> ExpandHostList(std::string_view text);

// The `position`th of Slurm's counts: "2(x3),1" is 2 2 2 1. nullopt if it is not such a list or too short.
std::optional<int> TasksOfNode(std::string_view text, int position);

// Sets from the cluster what the user left open: number of nodes, node rank, rendezvous endpoint, token. The user's
// settings take precedence; a contradiction (--nnodes 4 under 2 launchers) is an error. With --standalone every
// launcher is a separate job, and only its share of the cards comes from the cluster.
base::Result<void> ApplyCluster(const ClusterPlace& place, LaunchFlags& flags);

}  // namespace fulldeck::job
