// The settings of `fulldeck run`: torchrun's flags and fulldeck's own, with the defaults from PET_ variables, checked
// against each other. Pure, except that given file names become absolute paths (realpath), which fails for missing
// files. Unsupported flags are rejected; flags that have no effect here say so in their help (--monitor-interval,
// --start-method).
//
// Order of calls: ParseLaunchFlags, then ApplyCluster (job/launch/cluster.h) if a scheduler started this launcher,
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

// The name under which the program was called: determines the defaults that differ (see docs/launch.md).
enum class LaunchStyle {
  kFulldeck,  // fulldeck run
  kTorchrun,  // called as torchrun: --nproc-per-node 1, more ranks than cards is allowed with a prominent warning
  kLaunch,    // fulldeck launch, the older torch.distributed.launch: also 1, and adds --local-rank=N unless --use-env
};

enum class Streams { kNone = 0, kStdout = 1, kStderr = 2, kBoth = 3 };
// In a map such as "0:1,3:2", ranks that are not listed have `others`.
struct StreamChoice {
  Streams others = Streams::kNone;
  std::map<int, Streams> by_local_rank;
  Streams For(int local_rank) const;
};

// The effect of a verdict about the cards on the run. kFail: an idle card ends it; kRequire: so does a card that is
// not known to work.
enum class IdleCardPolicy { kWarn, kFail, kRequire, kOff };
// After a rank was found hung and the stacks of all ranks were saved.
enum class OnHang { kReport, kRestart, kFail };
enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex };
enum class Rendezvous { kNone, kStatic, kC10d };

// The rendezvous as the user specified it. ResolveRendezvous computes the fields of LaunchFlags from it: once for the
// number of nodes that the user gave, and again if a scheduler reports a different one.
struct RendezvousRequest {
  std::optional<Rendezvous> backend;  // --rdzv-backend; static by default
  std::optional<std::string> rdzv_host;
  std::optional<int> rdzv_port;  // 0: any free one
  std::optional<std::string> master_addr;
  std::optional<int> master_port;  // 0: any free one
};

struct LaunchFlags {
  LaunchStyle style = LaunchStyle::kFulldeck;
  bool help = false;  // -h: nothing else was parsed, and there is no program

  // Size. If both nproc and kind are absent: auto, the number of visible cards, or one if there is none. A kind (cpu,
  // gpu, cuda, gcu …) counts the cards of that kind; cpu counts CPUs.
  int min_nodes = 1;
  int max_nodes = 1;
  bool nodes_given = false;  // by --nnodes or PET_NNODES
  bool standalone = false;   // a separate job, even if a scheduler started several launchers
  std::optional<int> nproc;
  std::optional<std::string> nproc_kind;

  // Cards, in the forms of job/cards/device_choice.h. Never empty.
  std::string devices = "auto";
  bool share_cards = false;
  bool ignore_leases = false;  // --share-leases: run on cards that another run has leased
  IdleCardPolicy idle_card = IdleCardPolicy::kWarn;
  std::chrono::seconds idle_card_after{60};
  std::string torch_plugins;  // absolute paths, separated by colons; empty: none

  // Several nodes. kNone on a single node.
  RendezvousRequest requested;
  Rendezvous rendezvous = Rendezvous::kNone;
  std::optional<int> node_rank;
  // Several nodes: the rendezvous endpoint; empty if neither the user nor a cluster has specified it (CheckComplete
  // rejects that). Single node: MASTER_ADDR of the ranks, 127.0.0.1 unless the user specified another address of this
  // node.
  std::string endpoint_host;
  std::optional<int> endpoint_port;  // set if there are several nodes
  std::optional<int> master_port;    // the port that the user specified for rank 0's store; absent: a free one
  std::optional<std::string> local_addr;
  std::optional<std::string> rdzv_id;               // also the token of the rendezvous, unless FULLDECK_TOKEN is set
  std::optional<bool> is_host;                      // --rdzv-conf is_host: whether this node runs the rendezvous
  std::chrono::milliseconds join_timeout{600'000};  // --rdzv-conf join_timeout / timeout
  std::chrono::milliseconds last_call_timeout{30'000};     // after min_nodes joined, wait this long for more
  std::optional<std::chrono::milliseconds> silence_limit;  // --rdzv-conf keep_alive_interval × keep_alive_max_attempt

  // Ranks.
  int max_restarts = 0;
  OnHang on_hang = OnHang::kReport;
  bool strict = false;  // a silent error becomes the exit code of a run that otherwise succeeds
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

  // Flags of fulldeck.
  bool agent = true;  // --no-agent
  bool detach = false;
  bool dry_run = false;  // show placement and environment, start nothing
  bool progress = true;  // --no-progress

  std::vector<std::string> program;  // script and its arguments, unchanged; never empty unless help
};

// Python's rules for a command line: both spellings (--nproc-per-node, --nproc_per_node), --flag=value and --flag
// value, -r3, any unique abbreviation, `--` before the program; everything after the program belongs to it.
// `arguments` exclude the program's own name. The error names the flag (or PET_ variable) and the fix; for an unknown
// flag it suggests the nearest one.
base::Result<LaunchFlags> ParseLaunchFlags(LaunchStyle style, const std::vector<std::string>& arguments,
                                           const base::Environment& environment);

// Sets rendezvous, endpoint and master_port from `requested` for the number of nodes in `flags`.
base::Result<void> ResolveRendezvous(LaunchFlags& flags);

// Checks that everything that the rendezvous needs is known. Call it after the cluster was applied.
base::Result<void> CheckComplete(const LaunchFlags& flags);

// One row per flag: for --help, completion and the document. The parser reads the same table.
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
  const char* names;  // "--nproc-per-node", "-r,--redirects": spelled with dashes; underscores are accepted, too
  const char* value;  // "N"; empty for a switch
  const char* help;   // whole sentences
  const char* group;  // "Size", "Cards" …: rows of one group are adjacent
  bool is_torchruns;  // otherwise a flag of fulldeck
  bool has_pet;       // its default is taken from the environment: PET_NPROC_PER_NODE

  std::string LongName() const;     // "--redirects"
  std::string PetVariable() const;  // "PET_REDIRECTS"
  bool is_switch() const { return value[0] == '\0'; }
};
const std::vector<FlagRow>& LaunchFlagTable();

// The text of `fulldeck run --help`, at most 100 columns wide.
std::string LaunchHelp(LaunchStyle style);

}  // namespace fulldeck::job
