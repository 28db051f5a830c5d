#include "job/launch/launch_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "job/cards/device_choice.h"
#include "job/launch/launch_arguments.h"
#include "job/launch/launch_values.h"

namespace fulldeck::job {
namespace {

using base::Error;
using base::Result;

constexpr char kShutdownVariable[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// Reads the flags one by one into LaunchFlags; each step handles one flag and ignores the others.
class FlagReader {
 public:
  FlagReader(const LaunchArguments& arguments, LaunchFlags& flags) : arguments_(arguments), flags_(flags) {}

  Result<void> ReadAll(const base::Environment& environment) {
    ReadSwitches();
    using Step = Result<void> (FlagReader::*)();
    for (const Step step : {&FlagReader::ReadSize, &FlagReader::ReadCards, &FlagReader::ReadRendezvous,
                            &FlagReader::ReadNames, &FlagReader::ReadRendezvousConf, &FlagReader::ReadRanks,
                            &FlagReader::ReadLogs, &FlagReader::ReadAdapters, &FlagReader::ReadWhatIsRefused}) {
      const auto read = (this->*step)();
      if (!read) return read;
    }
    return ReadGrace(environment);
  }

 private:
  const GivenFlag* Find(FlagId id) const { return arguments_.Find(id); }

  // Stores what `parse` returns for the flag's text in `target`; adds the flag's name to an error.
  template <typename Parse, typename Target>
  Result<void> Read(FlagId id, Parse parse, Target& target) const {
    const GivenFlag* given = Find(id);
    if (given == nullptr) return {};
    auto value = parse(given->value);
    if (!value) return given->Refuse(value.error().message);
    target = std::move(*value);
    return {};
  }

  // Stores the one of `choices` whose name is the text.
  template <typename Value>
  Result<void> ReadChoice(FlagId id, const std::vector<std::pair<const char*, Value>>& choices, Value& target) const {
    return Read(
        id,
        [&](const std::string& text) -> Result<Value> {
          std::vector<std::string> names;
          for (const auto& choice : choices) {
            if (text == choice.first) return choice.second;
            names.emplace_back(choice.first);
          }
          return Error{"it must be one of " + base::Join(names, ", ")};
        },
        target);
  }

  static Result<int> NotNegative(const std::string& text) {
    const auto number = ParseWhole(text);
    if (!number || *number < 0 || *number > 1'000'000) return Error{"it must be a whole number from 0 on"};
    return static_cast<int>(*number);
  }

  // The ranks may have another working directory. nullopt if the file does not exist.
  static std::optional<std::string> AbsolutePath(const std::string& path) {
    char* const absolute = realpath(path.c_str(), nullptr);
    if (absolute == nullptr) return std::nullopt;
    std::string found(absolute);
    std::free(absolute);  // NOLINT(cppcoreguidelines-no-malloc): realpath's
    return found;
  }

  static Result<std::string> ParseLibraries(const std::string& text) {
    std::vector<std::string> paths;
    for (const std::string_view part : base::Split(text, ':')) {
      const std::string path(part);
      auto absolute = AbsolutePath(path);
      if (!absolute) return Error{"there is no library " + base::Printable(path)};
      paths.push_back(std::move(*absolute));
    }
    return base::Join(paths, ":");
  }

  void ReadSwitches() {
    const auto is_on = [&](FlagId id) { return arguments_.Has(id); };
    flags_.standalone = is_on(FlagId::kStandalone);
    flags_.share_cards = is_on(FlagId::kShareCards);
    flags_.ignore_leases = is_on(FlagId::kShareLeases);
    flags_.virtual_local_rank = is_on(FlagId::kVirtualLocalRank);
    flags_.module = is_on(FlagId::kModule);
    flags_.run_path = is_on(FlagId::kRunPath);
    flags_.no_python = is_on(FlagId::kNoPython) && !flags_.run_path;
    flags_.add_local_rank = flags_.style == LaunchStyle::kLaunch && !is_on(FlagId::kUseEnv);
    flags_.agent = !is_on(FlagId::kNoAgent);
    flags_.detach = is_on(FlagId::kDetach);
    flags_.dry_run = is_on(FlagId::kDryRun);
    flags_.progress = !is_on(FlagId::kNoProgress);
    flags_.strict = is_on(FlagId::kStrict);
    flags_.adapt = !is_on(FlagId::kNoAdapt);
    flags_.probe = !is_on(FlagId::kNoProbe);
    flags_.place = is_on(FlagId::kPlace);
    flags_.trace_ddp = is_on(FlagId::kTraceDdp);
  }

  Result<void> ReadSize() {
    NodeRange nodes;
    const auto read = Read(FlagId::kNnodes, ParseNodeRange, nodes);
    if (!read) return read;
    flags_.min_nodes = nodes.min;
    flags_.max_nodes = nodes.max;
    flags_.nodes_given = arguments_.Has(FlagId::kNnodes);
    if (flags_.style != LaunchStyle::kFulldeck) flags_.nproc = 1;
    const GivenFlag* given = Find(FlagId::kNprocPerNode);
    if (given == nullptr) return {};
    flags_.nproc.reset();
    const std::string text(base::Trim(given->value));
    if (text == "auto") return {};
    if (const auto number = ParseWhole(text)) {
      if (*number < 1) {
        return given->Refuse("at least one rank is needed; leave the flag at auto to get one for each card");
      }
      if (*number > kMaxRanksPerNode) return given->Refuse(fmt::format("at most {} ranks on a host", kMaxRanksPerNode));
      flags_.nproc = static_cast<int>(*number);
      return {};
    }
    if (text != "cpu") {
      if (const auto wrong = WhatIsWrongWithKind(text)) {
        return given->Refuse("it must be a number, auto, cpu, gpu or a kind of card; " + *wrong);
      }
    }
    flags_.nproc_kind = text;
    return {};
  }

  Result<void> ReadCards() {
    const auto devices = [](const std::string& text) -> Result<std::string> {
      const auto choice = ParseDeviceChoice(text);
      if (!choice) return choice.error();
      return std::string(base::Trim(text));
    };
    auto read = Read(FlagId::kDevices, devices, flags_.devices);
    if (!read) return read;
    read = ReadChoice<IdleCardPolicy>(FlagId::kIdleCard,
                                      {{"warn", IdleCardPolicy::kWarn},
                                       {"fail", IdleCardPolicy::kFail},
                                       {"require", IdleCardPolicy::kRequire},
                                       {"off", IdleCardPolicy::kOff}},
                                      flags_.idle_card);
    if (!read) return read;
    const auto seconds = [](const std::string& text) -> Result<std::chrono::seconds> {
      const auto number = ParseWhole(text);
      if (!number || *number < 1 || *number > 1'000'000) return Error{"it must be a whole number of seconds from 1 on"};
      return std::chrono::seconds(*number);
    };
    read = Read(FlagId::kIdleCardAfter, seconds, flags_.idle_card_after);
    if (!read) return read;
    read = Read(FlagId::kTorchPlugin, ParseLibraries, flags_.torch_plugins);
    if (!read) return read;
    return ReadChoice<NumaBinding>(FlagId::kNumaBinding,
                                   {{"node", NumaBinding::kNode},
                                    {"socket", NumaBinding::kSocket},
                                    {"exclusive", NumaBinding::kExclusive},
                                    {"core-complex", NumaBinding::kCoreComplex}},
                                   flags_.numa_binding);
  }

  Result<void> ReadRendezvous() {
    RendezvousRequest& requested = flags_.requested;
    if (const GivenFlag* given = Find(FlagId::kRdzvBackend)) {
      if (given->value != "static" && given->value != "c10d") {
        return given->Refuse("the backends are static (hosts numbered by --node-rank) and c10d (as they come)");
      }
      requested.backend = given->value == "c10d" ? Rendezvous::kC10d : Rendezvous::kStatic;
    }
    if (const GivenFlag* given = Find(FlagId::kRdzvEndpoint)) {
      auto endpoint = ParseEndpoint(given->value);
      if (!endpoint) return given->Refuse(endpoint.error().message);
      requested.rdzv_host = std::move(endpoint->host);
      requested.rdzv_port = endpoint->port;
    }
    const auto address = [](const std::string& text) -> Result<std::string> {
      auto host = ParseHostName(text);
      const auto has_port = ParseEndpoint(text);
      if (host && has_port && has_port->port) return Error{"give the port with --master-port"};
      return host;
    };
    auto read = Read(FlagId::kMasterAddr, address, requested.master_addr);
    if (!read) return read;
    read = Read(FlagId::kMasterPort, ParsePort, requested.master_port);
    if (!read) return read;
    read = Read(FlagId::kLocalAddr, ParseHostName, flags_.local_addr);
    if (!read) return read;
    read = Read(FlagId::kNodeRank, NotNegative, flags_.node_rank);
    if (!read) return read;
    LetFlagsWinOverTheEnvironment();
    return {};
  }

  // There are two ways to name a rendezvous endpoint. One on the command line overrides one that a cluster put into
  // PET_ variables.
  void LetFlagsWinOverTheEnvironment() {
    const GivenFlag* endpoint = Find(FlagId::kRdzvEndpoint);
    if (endpoint == nullptr) return;
    const auto is_from_environment = [&](FlagId id) { return Find(id) != nullptr && Find(id)->from_environment; };
    const GivenFlag* address = Find(FlagId::kMasterAddr);
    if (!endpoint->from_environment) {
      if (is_from_environment(FlagId::kMasterAddr)) flags_.requested.master_addr.reset();
      if (is_from_environment(FlagId::kMasterPort)) flags_.requested.master_port.reset();
    } else if (address != nullptr && !address->from_environment) {
      flags_.requested.rdzv_host.reset();
      flags_.requested.rdzv_port.reset();
    }
  }

  Result<void> ReadNames() {
    const auto role = [](const std::string& text) -> Result<std::string> {
      if (text.empty() || text.size() > 200 || HasControlCharacter(text)) return Error{"it must be a plain name"};
      return text;
    };
    const auto read = Read(FlagId::kRole, role, flags_.role);
    if (!read) return read;
    // torchrun's name for "no id" is "none".
    const GivenFlag* given = Find(FlagId::kRdzvId);
    if (given == nullptr || given->value == "none") return {};
    const std::string& id = given->value;
    if (id.empty() || id.size() > 200 || HasControlCharacter(id) || id.find('/') != std::string::npos || id == "." ||
        id == "..") {
      return given->Refuse("it names the job and its folder of logs: a plain name without '/' is needed");
    }
    flags_.rdzv_id = id;
    return {};
  }

  Result<void> ReadRendezvousConf() {
    RendezvousConf conf;
    const auto read = Read(FlagId::kRdzvConf, ParseRendezvousConf, conf);
    if (!read) return read;
    if (conf.join_timeout) flags_.join_timeout = *conf.join_timeout;
    if (conf.last_call_timeout) flags_.last_call_timeout = *conf.last_call_timeout;
    flags_.silence_limit = conf.silence_limit;
    flags_.is_host = conf.is_host;
    if (!conf.rank) return {};
    if (flags_.node_rank && *flags_.node_rank != *conf.rank) {
      return Find(FlagId::kRdzvConf)
          ->Refuse(fmt::format("rank={} contradicts --node-rank {}", *conf.rank, *flags_.node_rank));
    }
    flags_.node_rank = conf.rank;
    return {};
  }

  Result<void> ReadRanks() {
    auto read = Read(FlagId::kMaxRestarts, NotNegative, flags_.max_restarts);
    if (!read) return read;
    read = ReadChoice<OnHang>(FlagId::kOnHang,
                              {{"report", OnHang::kReport}, {"restart", OnHang::kRestart}, {"fail", OnHang::kFail}},
                              flags_.on_hang);
    if (!read) return read;
    return Read(FlagId::kSignalsToHandle, ParseSignals, flags_.stop_signals);
  }

  Result<void> ReadLogs() {
    if (const GivenFlag* given = Find(FlagId::kLogDir)) {
      if (given->value.find('\0') != std::string::npos) return given->Refuse("no folder can have such a name");
      flags_.log_dir = given->value;
    }
    auto read = Read(FlagId::kRedirects, ParseStreams, flags_.redirects);
    if (!read) return read;
    read = Read(FlagId::kTee, ParseStreams, flags_.tee);
    if (!read) return read;
    read = Read(FlagId::kLocalRanksFilter, ParseLocalRanks, flags_.shown_local_ranks);
    if (!read) return read;
    read = Read(FlagId::kDuplicateStdoutFilters, ParseFilters, flags_.stdout_filters);
    if (!read) return read;
    return Read(FlagId::kDuplicateStderrFilters, ParseFilters, flags_.stderr_filters);
  }

  Result<void> ReadAdapters() {
    const auto timeout = [](const std::string& text) -> Result<std::chrono::milliseconds> {
      const auto seconds = ParseSeconds(text);
      if (!seconds || seconds->count() == 0) return Error{"it must be a number of seconds above 0"};
      return *seconds;
    };
    const auto read = Read(FlagId::kTimeout, timeout, flags_.timeout);
    if (!read) return read;
    const auto file = [](const std::string& text) -> Result<std::string> {
      auto path = AbsolutePath(text);
      if (!path) return Error{"there is no file " + base::Printable(text)};
      return *path;
    };
    if (const auto config = Read(FlagId::kAccelerateConfig, file, flags_.accelerate_config); !config) return config;
    const auto method = [](const std::string& text) -> Result<std::string> {
      if (text != "fork" && text != "spawn" && text != "forkserver")
        return Error{"it must be fork, spawn or forkserver"};
      return text;
    };
    if (const auto start = Read(FlagId::kMpStartMethod, method, flags_.mp_start_method); !start) return start;
    const auto threads = [](const std::string& text) -> Result<std::optional<int>> {
      const auto number = ParseWhole(text);
      if (!number || *number < 0 || *number > 1024) return Error{"it must be a whole number from 0 to 1024"};
      return std::optional<int>(static_cast<int>(*number));
    };
    return Read(FlagId::kOpencvThreads, threads, flags_.opencv_threads);
  }

  // Flags that have no effect here: accepted if valid, or rejected.
  Result<void> ReadWhatIsRefused() {
    if (const GivenFlag* given = Find(FlagId::kLogsSpecs)) {
      return given->Refuse("log specs are Python objects, and this launcher has no Python; use --redirects and --tee");
    }
    if (const GivenFlag* given = Find(FlagId::kEventLogHandler); given != nullptr && given->value != "null") {
      return given->Refuse("event handlers are Python objects, and this launcher has no Python; only null works");
    }
    if (const GivenFlag* given = Find(FlagId::kMonitorInterval); given != nullptr && !ParseSeconds(given->value)) {
      return given->Refuse("it must be a number of seconds");
    }
    const GivenFlag* given = Find(FlagId::kStartMethod);
    if (given == nullptr || given->value == "spawn") return {};
    if (given->value != "fork" && given->value != "forkserver") {
      return given->Refuse("it must be one of spawn, fork, forkserver");
    }
    if (flags_.run_path) return given->Refuse("with --run-path only spawn works: each rank has a fresh interpreter");
    return {};
  }

  Result<void> ReadGrace(const base::Environment& environment) {
    GivenFlag given;
    if (const GivenFlag* flag = Find(FlagId::kShutdownTimeout)) {
      given = *flag;
    } else if (const auto value = environment.Get(kShutdownVariable)) {
      given = GivenFlag{*value, kShutdownVariable, true};
    } else {
      return {};
    }
    const auto grace = ParseSeconds(given.value);
    if (!grace) return given.Refuse("it must be a number of seconds from 0 on");
    flags_.grace = *grace;
    return {};
  }

  const LaunchArguments& arguments_;
  LaunchFlags& flags_;
};

Result<void> CheckProgram(const LaunchArguments& arguments, const LaunchFlags& flags) {
  const auto called = [&](FlagId id) { return arguments.Find(id)->name; };
  if (flags.module && arguments.Has(FlagId::kNoPython)) {
    return Error{fmt::format("{} and {} contradict each other: a module needs Python", called(FlagId::kModule),
                             called(FlagId::kNoPython))};
  }
  if (flags.module && flags.run_path) {
    return Error{fmt::format("{} and {} contradict each other: a module has a name, not a path",
                             called(FlagId::kModule), called(FlagId::kRunPath))};
  }
  if (flags.no_python && flags.add_local_rank) {
    return Error{fmt::format("launch mode adds --local-rank to the arguments of a Python script; with {} add --use-env",
                             called(FlagId::kNoPython))};
  }
  const bool uses_adapters = flags.place || flags.trace_ddp || flags.timeout || !flags.probe ||
                             !flags.accelerate_config.empty() || !flags.mp_start_method.empty() || flags.opencv_threads;
  if (uses_adapters && (!flags.adapt || !flags.agent)) {
    return Error{
        fmt::format("--place, --trace-ddp, --timeout, --no-probe, --accelerate-config, --mp-start-method and "
                    "--opencv-threads are for the adapters in Python ranks, which {} leaves out",
                    flags.agent ? "--no-adapt" : "--no-agent")};
  }
  if (flags.detach && flags.dry_run) return Error{"--detach and --dry-run contradict each other: nothing is started"};
  if (arguments.program.empty() || arguments.program[0].empty()) {
    return Error{
        "no program was given. Example: fulldeck run --nproc-per-node 8 train.py --epochs 3; a word behind a flag that "
        "takes a value is that value, not the program"};
  }
  return {};
}

Result<void> CheckCards(const LaunchArguments& arguments, const LaunchFlags& flags) {
  const auto choice = ParseDeviceChoice(flags.devices);
  if (!choice) return choice.error();
  if (flags.nproc_kind) {
    const GivenFlag& nproc = *arguments.Find(FlagId::kNprocPerNode);
    const bool ranks_on_cpu = *flags.nproc_kind == "cpu";
    if (choice->cpu && !ranks_on_cpu) {
      return nproc.Refuse("contradicts --devices cpu; give the number of ranks instead");
    }
    if (!choice->cpu && !choice->is_auto() && ranks_on_cpu) {
      return nproc.Refuse(
          fmt::format("it puts the ranks on the processors, which contradicts --devices {}; give the "
                      "number of ranks instead",
                      base::Printable(flags.devices)));
    }
  }
  const bool strict = flags.idle_card == IdleCardPolicy::kFail || flags.idle_card == IdleCardPolicy::kRequire;
  if (choice->cpu && strict) {
    return Error{"--idle-card fail and require cannot be kept with --devices cpu: there is no card to look at"};
  }
  if (flags.idle_card == IdleCardPolicy::kOff && arguments.Has(FlagId::kIdleCardAfter)) {
    return Error{"--idle-card-after and --idle-card off contradict each other"};
  }
  return {};
}

Result<void> CheckStandalone(const LaunchArguments& arguments, const LaunchFlags& flags) {
  if (!flags.standalone || flags.max_nodes == 1) return {};
  return arguments.Find(FlagId::kNnodes)
      ->Refuse(fmt::format("contradicts {}, which is one host; leave one of them out",
                           arguments.Find(FlagId::kStandalone)->name));
}

}  // namespace

Streams StreamChoice::For(int local_rank) const {
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? others : found->second;
}

Result<LaunchFlags> ParseLaunchFlags(LaunchStyle style, const std::vector<std::string>& arguments,
                                     const base::Environment& environment) {
  auto read = ReadLaunchArguments(arguments, environment);
  if (!read) return read.error();
  LaunchFlags flags;
  flags.style = style;
  flags.help = read->help;
  if (flags.help) return flags;
  const auto filled = FlagReader(*read, flags).ReadAll(environment);
  if (!filled) return filled.error();
  for (const auto check : {CheckStandalone, CheckCards, CheckProgram}) {
    const auto checked = check(*read, flags);
    if (!checked) return checked.error();
  }
  const auto resolved = ResolveRendezvous(flags);
  if (!resolved) return resolved.error();
  flags.program = std::move(read->program);
  return flags;
}

}  // namespace fulldeck::job
