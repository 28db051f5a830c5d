// What the user requested `fulldeck run` for: torchrun's flags and ours, with the defaults that PET_ variables give,
// checked against each other. Pure: nothing is looked up on the machine, no file is opened. What cannot be honored is
// refused; what has nothing to change here says so in its help (--monitor-interval, --start-method).
//
// In order: ParseLaunchFlags, then ApplyCluster (job/launch/cluster.h) where a cluster's manager started this launcher,
// then CheckComplete, then SelectCards (job/cards/card_selection.h).
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::job {

// Under which name the program was called: decides the defaults that differ (see docs/launch.md).
enum class LaunchStyle {
  kFulldeck,  // fulldeck run
  kTorchrun,  // called as torchrun: --nproc-per-node 1, more ranks than cards is allowed with a loud line
  kLaunch,    // fulldeck launch, the older torch.distributed.launch: 1 too, and adds --local-rank=N unless --use-env
};

enum class Streams { kNone = 0, kStdout = 1, kStderr = 2, kBoth = 3 };
// For a map such as "0:1,3:2" the ranks that are not named have `others`.
struct StreamChoice {
  Streams others = Streams::kNone;
  std::map<int, Streams> by_local_rank;
  Streams For(int local_rank) const;
};

// What a verdict on the cards does to the run. kFail: an idle card ends it; kRequire: one that is not known to work
// too.
enum class IdleCardPolicy { kWarn, kFail, kRequire, kOff };
// After a rank was found hung and the stacks of all were saved.
enum class OnHang { kReport, kRestart, kFail };
enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex };
enum class Rendezvous { kNone, kStatic, kC10d };

// Where the nodes are to meet, as it was said. ResolveRendezvous makes LaunchFlags' own fields of it, once for the
// number of nodes that the user gave, and again when a cluster's manager tells another.
struct RendezvousRequest {
  std::optional<Rendezvous> backend;  // --rdzv-backend; static where nothing was said
  std::optional<std::string> rdzv_host;
  std::optional<int> rdzv_port;  // 0: any free one
  std::optional<std::string> master_addr;
  std::optional<int> master_port;  // 0: any free one
};

struct LaunchFlags {
  LaunchStyle style = LaunchStyle::kFulldeck;
  bool help = false;  // -h: nothing else was read, and there is no program

  // Size. Absent nproc and kind: auto, the number of visible cards, else one. A kind (cpu, gpu, cuda, gcu …) counts the
  // cards of that kind; cpu counts processors.
  int min_nodes = 1;
  int max_nodes = 1;
  bool nodes_given = false;  // by --nnodes or PET_NNODES
  bool standalone = false;   // a job of its own, even where a cluster's manager started several launchers
  std::optional<int> nproc;
  std::optional<std::string> nproc_kind;

  // Cards, in the forms of job/cards/device_choice.h. Never empty.
  std::string devices = "auto";
  bool share_cards = false;
  bool ignore_leases = false;  // --share-leases: run on cards that another run has leased
  IdleCardPolicy idle_card = IdleCardPolicy::kWarn;
  std::chrono::seconds idle_card_after{60};
  std::string torch_plugins;  // absolute paths, separated by colons; empty: none

  // Several nodes. kNone on one host.
  RendezvousRequest requested;
  Rendezvous rendezvous = Rendezvous::kNone;
  std::optional<int> node_rank;
  // Several nodes: where they meet; empty when neither the user nor a cluster has said it (CheckComplete refuses that).
  // One host: MASTER_ADDR of the ranks, 127.0.0.1 unless the user named another address of this host.
  std::string endpoint_host;
  std::optional<int> endpoint_port;  // there with several nodes
  std::optional<int> master_port;    // the port that the user named for rank 0's store; absent: a free one
  std::optional<std::string> local_addr;
  std::optional<std::string> rdzv_id;  // also the token of our own listener, unless FULLDECK_TOKEN gives one
  std::optional<bool> is_host;         // --rdzv-conf is_host: this host gathers the others, or it does not
  std::chrono::milliseconds join_timeout{600'000};         // --rdzv-conf join_timeout / timeout
  std::chrono::milliseconds last_call_timeout{30'000};     // after MIN nodes joined, wait this long for more
  std::optional<std::chrono::milliseconds> silence_limit;  // --rdzv-conf keep_alive_interval × keep_alive_max_attempt

  // Ranks.
  int max_restarts = 0;
  OnHang on_hang = OnHang::kReport;
  bool strict = false;  // a silent error makes the exit code of a good run
  std::string role = "default";
  bool module = false;          // -m
  bool no_python = false;       // run it directly
  bool run_path = false;        // run as a script; never together with module or no_python
  bool add_local_rank = false;  // launch mode without --use-env
  bool virtual_local_rank = false;
  NumaBinding numa_binding = NumaBinding::kNone;
  std::vector<int> stop_signals;            // --signals-to-handle; empty: SIGTERM SIGINT SIGHUP SIGQUIT
  std::chrono::milliseconds grace{30'000};  // --shutdown-timeout, TORCH_ELASTIC_SHUTDOWN_TIMEOUT

  // Logs.
  std::optional<std::string> log_dir;
  StreamChoice redirects;
  std::optional<StreamChoice> tee;
  std::vector<int> shown_local_ranks;  // --local-ranks-filter, sorted; empty: all
  std::vector<std::string> stdout_filters, stderr_filters;

  // For the adapters in Python ranks.
  bool adapt = true;       // --no-adapt
  bool probe = true;       // --no-probe
  bool place = false;      // --place
  bool trace_ddp = false;  // --trace-ddp
  std::optional<std::chrono::milliseconds> timeout;
  std::string accelerate_config;  // absolute path; empty: none
  std::string mp_start_method;    // fork, spawn, forkserver; empty: Python's default
  std::optional<int> opencv_threads;

  // Ours.
  bool agent = true;  // --no-agent
  bool detach = false;
  bool dry_run = false;  // show placement and environment, start nothing
  bool progress = true;  // --no-progress

  std::vector<std::string> program;  // script and its arguments, untouched; never empty unless help
};

// Python's rules for a command line: both spellings (--nproc-per-node, --nproc_per_node), --flag=value and --flag
// value, -r3, any unique shortening, `--` before the program; everything behind the program is its own. `arguments`
// without the program's own name. The error says which flag (or PET_ variable) and what to do; an unknown flag gets the
// nearest one as a suggestion.
base::Result<LaunchFlags> ParseLaunchFlags(LaunchStyle style, const std::vector<std::string>& arguments,
                                           const base::Environment& environment);

// Fills rendezvous, endpoint and master_port from `requested` for the number of nodes that stands in `flags`.
base::Result<void> ResolveRendezvous(LaunchFlags& flags);

// Is everything known that the nodes need to come together? To be requested after the cluster was applied.
base::Result<void> CheckComplete(const LaunchFlags& flags);

// One row a flag: for --help, completion and the document. The parser reads the same table.
enum class FlagId {
  kHelp,
  kNnodes,
  kNprocPerNode,
  kStandalone,
  kDevices,
  kShareCards,
  kShareLeases,
  kIdleCard,
  kIdleCardAfter,
  kStrict,
  kTorchPlugin,
  kNumaBinding,
  kVirtualLocalRank,
  kNodeRank,
  kMasterAddr,
  kMasterPort,
  kRdzvBackend,
  kRdzvEndpoint,
  kRdzvId,
  kRdzvConf,
  kLocalAddr,
  kModule,
  kNoPython,
  kRunPath,
  kUseEnv,
  kRole,
  kMaxRestarts,
  kOnHang,
  kShutdownTimeout,
  kSignalsToHandle,
  kMonitorInterval,
  kStartMethod,
  kLogDir,
  kRedirects,
  kTee,
  kLocalRanksFilter,
  kDuplicateStdoutFilters,
  kDuplicateStderrFilters,
  kLogsSpecs,
  kEventLogHandler,
  kNoProgress,
  kNoAdapt,
  kPlace,
  kTraceDdp,
  kTimeout,
  kNoProbe,
  kAccelerateConfig,
  kMpStartMethod,
  kOpencvThreads,
  kDetach,
  kDryRun,
  kNoAgent,
};

struct FlagRow {
  FlagId id;
  const char* names;  // "--nproc-per-node", "-r,--redirects": dash spelling; the underscore one is understood too
  const char* value;  // "N", empty for a switch
  const char* help;   // whole sentences
  const char* group;  // "Size", "Cards" …: rows of one group stand together
  bool is_torchruns;  // else ours
  bool has_pet;       // PET_NPROC_PER_NODE in the environment is its default

  std::string LongName() const;     // "--redirects"
  std::string PetVariable() const;  // "PET_REDIRECTS"
  bool is_switch() const { return value[0] == '\0'; }
};
const std::vector<FlagRow>& LaunchFlagTable();

// The text of `fulldeck run --help`, at most 100 columns wide.
std::string LaunchHelp(LaunchStyle style);

}  // namespace fulldeck::job
