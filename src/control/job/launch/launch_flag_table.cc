#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/text.h"
#include "job/launch/launch_flags.h"

namespace fulldeck::job {
namespace {

constexpr char kSize[] = "Size";
constexpr char kCards[] = "Cards";
constexpr char kHosts[] = "Several hosts";
constexpr char kProgram[] = "Program and ranks";
constexpr char kLogs[] = "Output";
constexpr char kAdapters[] = "Python programs";
constexpr char kRun[] = "This run";

std::vector<FlagRow> MakeTable() {
  using Id = FlagId;
  return {
      {Id::kNprocPerNode, "--nproc-per-node", "N|auto|cpu|gpu|KIND",
       "Ranks on this host. auto: one for each visible card, one in all without cards. gpu or a kind (cuda, gcu, npu "
       "…): "
       "one for each card of that kind, and it is an error if there is none. cpu: one for each processor, on the "
       "processors. Default: auto; as torchrun and launch: 1.",
       kSize, true, true},
      {Id::kNnodes, "--nnodes", "N|MIN:MAX",
       "Hosts. With MIN:MAX (and --rdzv-backend c10d) the run starts when MIN are there and has waited a while for "
       "more. "
       "Default: 1, or what the cluster's manager says.",
       kSize, true, true},
      {Id::kStandalone, "--standalone", "",
       "One host with a free port, a job of its own even where Slurm or mpirun started several launchers.", kSize, true,
       true},

      {Id::kDevices, "--devices", "auto|cpu|KIND|N|LIST",
       "The cards to use. auto: the visible ones. KIND: those of this kind or vendor (gcu, npu, cuda, enflame …). N: "
       "the "
       "first N visible ones. LIST: these, by the numbers that `fulldeck devices` shows: 0,2,3 or 0-3; `3,` is card 3 "
       "alone; gcu:0,2 where there are several kinds. cpu: none.",
       kCards, false, false},
      {Id::kShareCards, "--share-cards", "", "More ranks than cards is what you want: ranks share them.", kCards, false,
       false},
      {Id::kShareLeases, "--share-leases", "", "Also use cards that another run on this host is using.", kCards, false,
       false},
      {Id::kIdleCard, "--idle-card", "warn|fail|require|off",
       "When a card does no work for its rank: warn (default); fail: end the run with exit code 86; require: also when "
       "it cannot be known whether the card works; off: do not watch the cards.",
       kCards, false, false},
      {Id::kIdleCardAfter, "--idle-card-after", "SECONDS",
       "How long a card may do nothing before that is reported. Default: 60. A run that ends earlier gets its verdict "
       "at "
       "its end.",
       kCards, false, false},
      {Id::kTorchPlugin, "--torch-plugin", "LIBRARY[:LIBRARY]",
       "Libraries that teach torch the cards of a vendor, for programs in C++ (FULLDECK_TORCH_PLUGIN in the ranks); "
       "they "
       "come before those of the variable.",
       kCards, false, false},
      {Id::kVirtualLocalRank, "--virtual-local-rank", "",
       "LOCAL_RANK is 0 in every rank, and the vendor's visible-device list holds the rank's own card alone.", kCards,
       true, true},
      {Id::kNumaBinding, "--numa-binding", "node|socket|exclusive|core-complex",
       "Bind each rank to processors near its card: all of its NUMA node, all of its socket, a share of the node that "
       "no "
       "other rank has, or cores that share a cache.",
       kCards, true, false},

      {Id::kNodeRank, "--node-rank", "K",
       "Number of this host, from 0. Needed with --master-addr unless the cluster's manager tells it.", kHosts, true,
       true},
      {Id::kMasterAddr, "--master-addr", "HOST", "Host 0: a name, an address, or [IPv6].", kHosts, true, true},
      {Id::kMasterPort, "--master-port", "PORT",
       "Several hosts: the port of host 0 where they meet (29500). One host: the port of rank 0's store, free by "
       "default.",
       kHosts, true, true},
      {Id::kRdzvBackend, "--rdzv-backend", "static|c10d",
       "static: hosts are numbered by --node-rank. c10d: as they come. Others (etcd, etcd-v2 …) are refused. Default: "
       "static.",
       kHosts, true, true},
      {Id::kRdzvEndpoint, "--rdzv-endpoint", "HOST[:PORT]",
       "Where the hosts meet; the same text on every host, [IPv6]:PORT too. Without a port: 29400 with c10d, else "
       "29500. "
       "With c10d on one host nobody needs to meet, and this port stays unused.",
       kHosts, true, true},
      {Id::kRdzvId, "--rdzv-id", "ID",
       "Name of the job, the same on every host; also the token without which a host is turned away.", kHosts, true,
       true},
      {Id::kRdzvConf, "--rdzv-conf", "KEY=VALUE,…",
       "join_timeout or timeout: seconds to wait for the hosts (600). last_call_timeout: seconds to wait for more than "
       "MIN (30). keep_alive_interval and keep_alive_max_attempt: their product is the silence in seconds after which "
       "a "
       "host is lost. is_host (c10d): this host gathers the others. rank (static): same as --node-rank. close_timeout "
       "and read_timeout: kept in any case, as closing waits for nobody and there is no store to read from. "
       "store_type: "
       "tcp alone. All other keys are refused.",
       kHosts, true, true},
      {Id::kLocalAddr, "--local-addr", "ADDRESS", "Under which address the others reach this host.", kHosts, true,
       true},

      {Id::kModule, "-m,--module", "", "PROGRAM is a Python module, as with python -m.", kProgram, true, true},
      {Id::kNoPython, "--no-python", "", "Run PROGRAM directly, without Python.", kProgram, true, true},
      {Id::kRunPath, "--run-path", "",
       "Run PROGRAM as __main__ in a fresh interpreter, which is how a script is run in any case; wins over "
       "--no-python.",
       kProgram, true, true},
      {Id::kUseEnv, "--use-env", "",
       "launch mode: do not add --local-rank=N to the program's arguments. In the other modes it is never added.",
       kProgram, true, false},
      {Id::kRole, "--role", "NAME", "ROLE_NAME of the ranks. Default: default.", kProgram, true, true},
      {Id::kMaxRestarts, "--max-restarts", "N", "Start all ranks again at most N times when one fails. Default: 0.",
       kProgram, true, true},
      {Id::kOnHang, "--on-hang", "report|restart|fail",
       "When there is evidence that the rank that others wait for is stuck, it is reported with its call and the "
       "stacks "
       "of all ranks in any case. Then: go on (report, default), start all ranks again as --max-restarts allows "
       "(restart), or end the run with code 90 (fail). See docs/hangs.md.",
       kProgram, false, false},
      {Id::kStrict, "--strict", "",
       "When a silent error was reported (docs/python.md) and every rank ended well, the run ends with code 92. It is "
       "never cut short.",
       kProgram, false, false},
      {Id::kShutdownTimeout, "--shutdown-timeout", "SECONDS",
       "From the polite signal to SIGKILL. Default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30.", kProgram, true, true},
      {Id::kSignalsToHandle, "--signals-to-handle", "SIGTERM,…",
       "Signals that stop the run. Default: SIGTERM,SIGINT,SIGHUP,SIGQUIT. SIGUSR1 and SIGUSR2 are passed on to the "
       "ranks "
       "and stop the run only when they are named here.",
       kProgram, true, true},
      {Id::kMonitorInterval, "--monitor-interval", "SECONDS",
       "How late the end of a rank may be seen. Any number is kept: it is seen at once.", kProgram, true, true},
      {Id::kStartMethod, "--start-method", "spawn|fork|forkserver",
       "Concerns Python functions alone; a program is started afresh whatever stands here, by torchrun too. With "
       "--run-path only spawn is kept, and the others are refused.",
       kProgram, true, true},

      {Id::kLogDir, "--log-dir", "DIR", "Folder for the ranks' output; each run makes a folder of its own there.",
       kLogs, true, true},
      {Id::kRedirects, "-r,--redirects", "0-3|RANK:0-3,…",
       "Streams that go to files and not to the console: 0 none, 1 stdout, 2 stderr, 3 both; for all local ranks, or "
       "for "
       "each one that is named.",
       kLogs, true, true},
      {Id::kTee, "-t,--tee", "0-3|RANK:0-3,…", "Streams that go to files and to the console; same form.", kLogs, true,
       true},
      {Id::kLocalRanksFilter, "--local-ranks-filter", "RANK,…", "Show these local ranks alone on the console.", kLogs,
       true, true},
      {Id::kDuplicateStdoutFilters, "--duplicate-stdout-filters", "TEXT,…",
       "Copy lines of stdout that hold one of these texts to a file of their own; two commas stand for one.", kLogs,
       true, true},
      {Id::kDuplicateStderrFilters, "--duplicate-stderr-filters", "TEXT,…", "The same for stderr.", kLogs, true, true},
      {Id::kEventLogHandler, "--event-log-handler", "null",
       "Only null is kept: handlers are Python objects, and this launcher has no Python.", kLogs, true, true},
      {Id::kLogsSpecs, "--logs-specs", "NAME", "Refused: log specs are Python objects. See --redirects and --tee.",
       kLogs, true, false},
      {Id::kNoProgress, "--no-progress", "", "No progress line on the terminal.", kLogs, false, false},

      {Id::kNoAdapt, "--no-adapt", "",
       "Leave torch and the frameworks as they are installed: nothing that was written for CUDA is redirected to the "
       "rank's card.",
       kAdapters, false, false},
      {Id::kPlace, "--place", "",
       "A model that is not on its rank's card when DistributedDataParallel wraps it is moved there. Default: refused "
       "with a report.",
       kAdapters, false, false},
      {Id::kTraceDdp, "--trace-ddp", "",
       "Each rank says where its model is, and what that means, just before the model is wrapped.", kAdapters, false,
       false},
      {Id::kTimeout, "--timeout", "SECONDS",
       "After which calls of torch.distributed give up, whatever the program says. Default: the program's own, else "
       "torch's 1800.",
       kAdapters, false, false},
      {Id::kNoProbe, "--no-probe", "", "Do not try each rank's card with a small computation before it is used.",
       kAdapters, false, false},
      {Id::kAccelerateConfig, "--accelerate-config", "FILE",
       "Give the program what `accelerate launch` would have given it from this file.", kAdapters, false, false},

      {Id::kMpStartMethod, "--mp-start-method", "fork|spawn|forkserver",
       "How data loaders and other children of a Python rank start, unless the program sets it itself. Default: "
       "Python's.",
       kAdapters, false, false},
      {Id::kOpencvThreads, "--opencv-threads", "N",
       "Threads of OpenCV in Python ranks and their data loaders; 0: none of its own. Default: OpenCV's, one per core "
       "in "
       "each process.",
       kAdapters, false, false},

      {Id::kDetach, "--detach", "", "Go on in the background; then fulldeck logs -f, ps and stop.", kRun, false, false},
      {Id::kDryRun, "--dry-run", "", "Show which rank would get which card and environment, and start nothing.", kRun,
       false, false},
      {Id::kNoAgent, "--no-agent", "", "Put nothing into the ranks: no crash stacks, no state on the rank board.", kRun,
       false, false},
      {Id::kHelp, "-h,--help", "", "This text.", kRun, true, false},
  };
}

constexpr std::size_t kWidth = 100;

// Wraps `text` to at most kWidth columns, indented by `indent` spaces.
std::string Wrapped(std::string_view text, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  for (const std::string_view word : base::Split(text, ' ')) {
    // UTF-8 continuation bytes take no column.
    const auto columns = static_cast<std::size_t>(
        std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    if (column > 0 && column + 1 + columns > kWidth) {
      out += '\n';
      column = 0;
    }
    if (column == 0) {
      out.append(indent, ' ');
      column = indent;
    } else {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns;
  }
  return out + '\n';
}

struct StyleText {
  const char* command;
  const char* purpose;
};

StyleText TextOf(LaunchStyle style) {
  switch (style) {
    case LaunchStyle::kTorchrun:
      return {"torchrun", "Starts PROGRAM as several ranks, as torchrun does; this is fulldeck under that name."};
    case LaunchStyle::kLaunch:
      return {
          "fulldeck launch",
          "Starts PROGRAM as several ranks with --local-rank=N as first argument, as torch.distributed.launch did."};
    case LaunchStyle::kFulldeck:
      break;
  }
  return {"fulldeck run", "Starts PROGRAM as one rank a card, watches the ranks, and stops them together."};
}

}  // namespace

std::string FlagRow::LongName() const {
  const std::string_view all = names;
  return std::string(all.substr(all.rfind(',') == std::string_view::npos ? 0 : all.rfind(',') + 1));
}

std::string FlagRow::PetVariable() const {
  std::string variable = "PET_";
  for (const char c : LongName().substr(2)) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

const std::vector<FlagRow>& LaunchFlagTable() {
  static const std::vector<FlagRow> rows = MakeTable();
  return rows;
}

std::string LaunchHelp(LaunchStyle style) {
  const StyleText text = TextOf(style);
  std::string help = fmt::format("Usage: {} [FLAGS] PROGRAM [ARGUMENTS OF THE PROGRAM]\n\n", text.command);
  help += Wrapped(text.purpose, 0);
  help += Wrapped(
      "PROGRAM is a Python script, a module with -m, or any executable file. Everything behind it is its own. Both "
      "--nproc-per-node and --nproc_per_node are understood. Every flag of torchrun has a default in the environment: "
      "PET_NPROC_PER_NODE=8. A flag that cannot be honored is refused; the few that have nothing to change here say so "
      "below.",
      0);
  std::string_view group;
  for (const FlagRow& row : LaunchFlagTable()) {
    if (group != row.group) {
      group = row.group;
      help += fmt::format("\n{}:\n", group);
    }
    std::string names = row.names;
    if (const auto comma = names.find(','); comma != std::string::npos) names.replace(comma, 1, ", ");
    help += fmt::format("  {}{}{}\n", names, row.is_switch() ? "" : " ", row.value) + Wrapped(row.help, 6);
  }
  help += fmt::format(
      "\nExamples:\n"
      "  {0} train.py --epochs 3\n"
      "  {0} --nproc-per-node 8 --devices gcu train.py\n"
      "  {0} --devices cpu --nproc-per-node 2 -m my_package.train\n"
      "  {0} --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 train.py\n"
      "      and with --node-rank 1 on the other host\n"
      "  {0} --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29400 train.py\n"
      "      the same on both hosts\n"
      "  srun -N2 --ntasks-per-node=1 {0} train.py\n",
      text.command);
  return help;
}

}  // namespace fulldeck::job
