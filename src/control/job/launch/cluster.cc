#include "job/launch/cluster.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/text.h"
#include "job/launch/launch_values.h"

namespace fulldeck::job {
namespace {

using base::Environment;
using base::Error;
using base::Result;
using Place = std::optional<ClusterPlace>;

// Higher step ids do not come from srun: the batch script, an interactive shell, the external step.
constexpr long long kFirstSpecialStep = 0xfffffff0LL;

std::optional<std::string> FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto value = environment.Get(name);
    if (value && !value->empty()) return value;
  }
  return std::nullopt;
}

std::optional<long long> NumberOf(const Environment& environment, std::initializer_list<const char*> names) {
  const auto value = FirstOf(environment, names);
  return value ? base::ParseInteger<long long>(base::Trim(*value)) : std::nullopt;
}

// The same in every launcher, different for the next job; below the kernel's ephemeral ports.
int PortFor(std::string_view id) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return 20000 + static_cast<int>(hash % 9000);
}

// A job id is untrusted text that becomes a folder name and a token.
std::string PlainId(std::string_view text) {
  std::string plain;
  for (const char c : text.substr(0, 100)) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
    plain += is_plain ? c : '_';
  }
  return plain;
}

// Four numbers from a manager, not yet validated.
struct Numbers {
  std::optional<long long> launchers, launcher, local_launchers, local_launcher;
};

Result<Place> MakePlace(std::string manager, const Numbers& numbers) {
  const auto wrong = [&](std::string_view what) {
    return Error{fmt::format(
        "{}'s variables contradict each other: {}. If they are left over from another job, unset them", manager, what)};
  };
  if (!numbers.launchers || !numbers.launcher)
    return wrong("the number of launchers or this one's number is no number");
  if (*numbers.launchers < 1 || *numbers.launchers > kMaxNodes || *numbers.launcher < 0 ||
      *numbers.launcher >= *numbers.launchers) {
    return wrong(fmt::format("this is number {} of {} launchers", *numbers.launcher, *numbers.launchers));
  }
  if (*numbers.launchers == 1) return Place();
  if (!numbers.local_launchers || !numbers.local_launcher) {
    return Error{fmt::format("{} started {} launchers and does not say how many of them share this host and its cards",
                             manager, *numbers.launchers)};
  }
  if (*numbers.local_launchers < 1 || *numbers.local_launchers > *numbers.launchers || *numbers.local_launcher < 0 ||
      *numbers.local_launcher >= *numbers.local_launchers) {
    return wrong(fmt::format("this is number {} of {} launchers on this host, of {} in all", *numbers.local_launcher,
                             *numbers.local_launchers, *numbers.launchers));
  }
  ClusterPlace place;
  place.manager = std::move(manager);
  place.launchers = static_cast<int>(*numbers.launchers);
  place.launcher = static_cast<int>(*numbers.launcher);
  place.local_launchers = static_cast<int>(*numbers.local_launchers);
  place.local_launcher = static_cast<int>(*numbers.local_launcher);
  if (place.local_launchers == *place.launchers) place.first_host = "127.0.0.1";
  return Place(std::move(place));
}

void SetJob(ClusterPlace& place, const std::string& id) {
  place.job_id = PlainId(id);
  place.port = PortFor(id);
}

// Whether this is a task of srun. The batch script of a job has task variables, too, but no step.
bool IsInSlurmStep(const Environment& environment) {
  const auto step = NumberOf(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
  return FirstOf(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}) && step && *step >= 0 && *step < kFirstSpecialStep &&
         FirstOf(environment, {"SLURM_PROCID"});
}

Result<std::optional<std::string>> FirstSlurmHost(const Environment& environment) {
  const auto list = FirstOf(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return std::optional<std::string>();
  const auto hosts = ExpandHostList(*list);
  if (!hosts) return Error{"Slurm's list of hosts cannot be read: " + hosts.error().message};
  return std::optional<std::string>(hosts->front());
}

Result<Place> ReadSlurm(const Environment& environment) {
  Numbers numbers;
  numbers.launchers = NumberOf(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  numbers.launcher = NumberOf(environment, {"SLURM_PROCID"});
  numbers.local_launcher = NumberOf(environment, {"SLURM_LOCALID"});
  const auto node = NumberOf(environment, {"SLURM_NODEID"});
  const auto tasks = FirstOf(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (node && tasks && *node >= 0 && *node < kMaxNodes) {
    numbers.local_launchers = TasksOfNode(*tasks, static_cast<int>(*node));
  }
  auto place = MakePlace("Slurm", numbers);
  if (!place || !*place) return place;
  if (!(*place)->first_host) {
    auto host = FirstSlurmHost(environment);
    if (!host) return host.error();
    (*place)->first_host = std::move(*host);
  }
  std::string id = fmt::format("slurm-{}.{}", *FirstOf(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}),
                               *FirstOf(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}));
  // A requeued job is a different run, and its old ports may still be closing.
  if (const auto restarts = FirstOf(environment, {"SLURM_RESTART_COUNT"}); restarts && *restarts != "0") {
    id += "-restart" + *restarts;
  }
  SetJob(**place, id);
  return place;
}

// mpirun and mpiexec do not report where rank 0 is. Inside a Slurm job, use the first node of its list, because both
// start there. If rank 0 is elsewhere, its launcher finds that the address is not its own and reports it.
Result<void> AddFirstHostOfSlurm(const Environment& environment, ClusterPlace& place) {
  if (place.first_host || !FirstOf(environment, {"SLURM_JOB_ID", "SLURM_JOBID"})) return {};
  const auto list = FirstOf(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return {};
  const auto hosts = ExpandHostList(*list);
  if (!hosts) return Error{"Slurm's list of hosts cannot be read: " + hosts.error().message};
  place.first_host = hosts->front();
  return {};
}

Result<Place> ReadMpi(const Environment& environment, std::string manager, const Numbers& numbers,
                      const std::optional<std::string>& id) {
  auto place = MakePlace(std::move(manager), numbers);
  if (!place || !*place) return place;
  const auto added = AddFirstHostOfSlurm(environment, **place);
  if (!added) return added.error();
  if (id) SetJob(**place, *id);
  return place;
}

Result<Place> ReadOpenMpi(const Environment& environment) {
  const Numbers numbers{
      NumberOf(environment, {"OMPI_COMM_WORLD_SIZE"}), NumberOf(environment, {"OMPI_COMM_WORLD_RANK"}),
      NumberOf(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE"}), NumberOf(environment, {"OMPI_COMM_WORLD_LOCAL_RANK"})};
  auto id = FirstOf(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"});
  if (id) id = "mpirun-" + *id;
  return ReadMpi(environment, "OpenMPI", numbers, id);
}

Result<Place> ReadMpich(const Environment& environment) {
  const Numbers numbers{NumberOf(environment, {"PMI_SIZE"}), NumberOf(environment, {"PMI_RANK"}),
                        NumberOf(environment, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}),
                        NumberOf(environment, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"})};
  return ReadMpi(environment, "MPICH", numbers, std::nullopt);
}

Result<Place> ReadKubernetes(const Environment& environment) {
  const auto index = NumberOf(environment, {"JOB_COMPLETION_INDEX"});
  if (!index || *index < 0 || *index >= kMaxNodes) {
    return Error{fmt::format("JOB_COMPLETION_INDEX='{}' is not the number of a pod",
                             base::Printable(environment.Get("JOB_COMPLETION_INDEX")->substr(0, 40)))};
  }
  ClusterPlace place;
  place.manager = "Kubernetes";
  place.launcher = static_cast<int>(*index);
  return Place(std::move(place));
}

std::string HowManyLaunchers(const ClusterPlace& place) {
  std::string text = fmt::format("{} started {} launchers", place.manager, *place.launchers);
  if (place.local_launchers > 1) text += fmt::format(", {} of them on this host", place.local_launchers);
  return text;
}

Result<void> SetNodeCount(const ClusterPlace& place, LaunchFlags& flags) {
  const int launchers = *place.launchers;
  if (!flags.nodes_given) {
    flags.min_nodes = flags.max_nodes = launchers;
    return {};
  }
  if (launchers < flags.min_nodes || launchers > flags.max_nodes) {
    const std::string requested = flags.min_nodes == flags.max_nodes
                                      ? std::to_string(flags.max_nodes)
                                      : fmt::format("{}:{}", flags.min_nodes, flags.max_nodes);
    const char* one_per_node = place.manager == "Slurm" ? "--ntasks-per-node=1" : "one process a host";
    return Error{
        fmt::format("--nnodes {} and {}. Leave --nnodes out, or start one launcher a host ({}); with --standalone each "
                    "launcher is a "
                    "job of its own",
                    requested, HowManyLaunchers(place), one_per_node)};
  }
  flags.max_nodes = launchers;
  return {};
}

Result<void> SetRendezvous(const ClusterPlace& place, LaunchFlags& flags) {
  RendezvousRequest& requested = flags.requested;
  const bool named = requested.rdzv_host || requested.master_addr;
  const bool numbered = flags.min_nodes == flags.max_nodes;
  // A c10d endpoint that the user gave may be on any node, and the nodes join in any order.
  const bool users_c10d = requested.backend == Rendezvous::kC10d && named;
  if (numbered && !users_c10d && !flags.node_rank) flags.node_rank = place.launcher;
  if (!named) {
    if (!place.first_host) {
      return Error{
          fmt::format("{}, and {} does not tell where the first one is: add --master-addr HOST, the host of launcher 0",
                      HowManyLaunchers(place), place.manager)};
    }
    const auto host = ParseHostName(*place.first_host);
    if (!host) {
      return Error{fmt::format("{} names '{}' as its first host: {}", place.manager,
                               base::Printable(place.first_host->substr(0, 80)), host.error().message)};
    }
    requested.rdzv_host = *host;
    requested.rdzv_port = requested.master_port ? requested.master_port : place.port;
    requested.master_port.reset();
  } else if (!requested.rdzv_port && !requested.master_port && !requested.rdzv_host) {
    requested.master_port = place.port;
  }
  return {};
}

}  // namespace

Result<Place> ReadCluster(const Environment& environment) {
  // mpirun inside a Slurm job starts its helpers by srun, so its own variables take precedence. Slurm's PMI sets
  // PMI_RANK, too, but nothing about this node, and agrees with Slurm's variables.
  if (environment.Get("OMPI_COMM_WORLD_RANK")) return ReadOpenMpi(environment);
  const bool has_pmi = environment.Get("PMI_RANK").has_value();
  if (has_pmi && FirstOf(environment, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"})) return ReadMpich(environment);
  if (IsInSlurmStep(environment)) return ReadSlurm(environment);
  if (has_pmi) return ReadMpich(environment);
  if (environment.Get("JOB_COMPLETION_INDEX")) return ReadKubernetes(environment);
  return Place();
}

std::optional<std::string> HintForLoneLauncher(const Environment& environment) {
  if (!FirstOf(environment, {"SLURM_JOB_ID", "SLURM_JOBID"})) return std::nullopt;
  const auto place = ReadCluster(environment);
  if (!place || *place) return std::nullopt;
  const auto hosts = IsInSlurmStep(environment) ? NumberOf(environment, {"SLURM_STEP_NUM_NODES"})
                                                : NumberOf(environment, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  if (!hosts || *hosts < 2) return std::nullopt;
  return fmt::format(
      "this Slurm job has {} hosts, and fulldeck runs on one of them; to use all: srun --ntasks-per-node=1 fulldeck "
      "run …",
      *hosts);
}

Result<void> ApplyCluster(const ClusterPlace& place, LaunchFlags& flags) {
  if (flags.standalone) return {};
  if (!place.launchers) {
    // Each pod of an indexed job may also be a separate job: a number is needed only if the user requested several
    // nodes.
    const bool is_numbered = flags.rendezvous == Rendezvous::kStatic;
    if (is_numbered && !flags.node_rank) flags.node_rank = place.launcher;
    return {};
  }
  const auto hosts = SetNodeCount(place, flags);
  if (!hosts) return hosts;
  const auto rendezvous = SetRendezvous(place, flags);
  if (!rendezvous) return rendezvous;
  if (!flags.rdzv_id) flags.rdzv_id = place.job_id;
  return ResolveRendezvous(flags);
}

}  // namespace fulldeck::job
