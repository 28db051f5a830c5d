// fulldeck doctor: checks that this machine can run a job, and prints fixes.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/doctor_proofs.h"
#include "cli/doctor_report.h"
#include "cli/language.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "device/inventory.h"
#include "doctor/check.h"
#include "doctor/machine/system_calls.h"
#include "doctor/network/peer_listener.h"
#include "doctor/run_checks.h"
#include "net/host_address.h"
#include "wire/variables.h"

namespace fulldeck::cli {
namespace {

using doctor::Check;
using doctor::CheckReport;
using doctor::MachineUnderTest;

struct Options {
  bool deep = false;
  std::vector<std::string> only;
  bool json = false;
  std::string language;
  int nproc = 0;  // 0: as many as there are visible cards
  int workers = -1;
  std::string work_dir = ".";
  int nnodes = 1;
  std::string nodes;
  std::string python;
  double timeout_seconds = std::chrono::duration<double>(MachineUnderTest().timeout).count();
  bool list = false;
  bool collectives = false;
  ProofOptions proof;  // the options of only --collectives and --script; the rest is copied
  int listen = -1;
  std::string address;  // of --listen
  std::string root = "/";
};

// Bounds a forgotten listener.
constexpr base::Duration kListenAtMost = std::chrono::hours(1);

// Groups and single checks, in any combination.
base::Result<std::vector<Check>> Chosen(const std::vector<std::string>& only) {
  const auto all = doctor::Checks();
  if (only.empty()) return std::vector<Check>(all.begin(), all.end());
  std::vector<std::string> wanted;
  for (const std::string& value : only) {
    for (const std::string_view part : base::Split(value, ',')) wanted.emplace_back(part);
  }
  std::vector<std::string> names;
  for (const Check& check : all) {
    const std::string group(doctor::NameOf(check.group));
    if (std::find(names.begin(), names.end(), group) == names.end()) names.push_back(group);
  }
  const std::string groups = base::Join(names, ", ");
  for (const Check& check : all) names.emplace_back(check.id);
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto near = base::ClosestMatch(name, names);
    return base::Error{
        fmt::format("--only: there is no group or check '{}'{} Groups: {}. Checks: fulldeck doctor --list",
                    base::Printable(name), near ? fmt::format("; did you mean '{}'?", *near) : ".", groups)};
  }
  std::vector<Check> chosen;
  for (const Check& check : all) {
    const auto is_wanted = [&](const std::string& name) {
      return name == doctor::NameOf(check.group) || name == check.id;
    };
    if (std::any_of(wanted.begin(), wanted.end(), is_wanted)) chosen.push_back(check);
  }
  return chosen;
}

// The interpreter that `fulldeck run script.py` would use.
std::string FindPython(const Options& options, const MachineUnderTest& machine) {
  std::string name = options.python;
  if (name.empty()) name = machine.environment.Get("PYTHON_EXEC").value_or("");
  if (name.empty()) name = "python3";
  if (name.find('/') != std::string::npos) return name;
  return machine.root.FindProgram(name, machine.environment).value_or("");
}

base::Result<MachineUnderTest> MakeSubject(const Options& options) {
  MachineUnderTest machine;
  machine.root = base::SystemRoot(options.root);
  machine.environment = base::Environment::OfThisProcess();
  device::InventoryOptions inventory_options;
  inventory_options.root = machine.root;
  inventory_options.environment = machine.environment;
  auto inventory = device::InventoryReader(std::move(inventory_options)).Read();
  if (!inventory) return inventory.error();
  machine.inventory = std::move(*inventory);
  const auto cards = machine.inventory.Cards();
  const auto visible =
      std::count_if(cards.begin(), cards.end(), [](const device::Card* card) { return card->visible; });
  machine.ranks = options.nproc > 0 ? options.nproc : std::max(static_cast<int>(visible), 1);
  machine.workers = options.workers;
  for (const std::string_view host : base::Split(options.nodes, ',')) {
    if (!host.empty()) machine.peers.emplace_back(host);
  }
  machine.nodes = std::max(options.nnodes, static_cast<int>(machine.peers.size()) + (machine.peers.empty() ? 0 : 1));
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(options.work_dir, error).lexically_normal();
  if (error) return base::Error{"the folder in which you are is gone: " + error.message()};
  if (!folder.has_filename() && folder.has_relative_path()) folder = folder.parent_path();
  machine.work_dir = folder.string();
  machine.python = FindPython(options, machine);
  machine.program = base::ExecutablePath();
  machine.deep = options.deep;
  machine.timeout = Seconds(options.timeout_seconds);
  return machine;
}

wire::ExitCode Examine(const Options& options) {
  const bool chinese = WantsChinese(options.language);
  const auto checks = Chosen(options.only);
  if (!checks) return Refuse(wire::ExitCode::kUsage, checks.error().message);
  if (options.list) return Print(ChecksTable(*checks, chinese));

  const base::TimePoint begin = base::SteadyClock::Instance().Now();
  const auto machine = MakeSubject(options);
  if (!machine) {
    base::Log(base::Severity::kError, machine.error().message);
    return wire::ExitCode::kBadEnvironment;
  }
  const std::vector<CheckReport> reports = doctor::RunChecks(*checks, *machine);
  DoctorReportOptions report_options;
  report_options.colors = StdoutWantsColor();
  report_options.chinese = chinese;
  report_options.took = base::SteadyClock::Instance().Now() - begin;
  const wire::ExitCode printed =
      Print(options.json ? DoctorJson(reports, *machine, report_options) : DoctorText(reports, report_options));
  if (printed != wire::ExitCode::kOk) return printed;
  const bool failed = std::any_of(reports.begin(), reports.end(), [](const CheckReport& report) {
    return doctor::Worst(report.findings) == doctor::Verdict::kFail;
  });
  return failed ? wire::ExitCode::kCheckFailed : wire::ExitCode::kOk;
}

// --collectives and --script run without the other checks.
wire::ExitCode Prove(const Options& options) {
  const bool collectives = options.collectives;
  if (collectives && !options.proof.script.empty()) {
    return Refuse(
        wire::ExitCode::kUsage,
        "--collectives and --script are two questions: ask them one after the other. See: fulldeck doctor --help");
  }
  device::InventoryOptions inventory_options;
  inventory_options.root = base::SystemRoot(options.root);
  const auto inventory = device::InventoryReader(std::move(inventory_options)).Read();
  if (!inventory) {
    base::Log(base::Severity::kError, inventory.error().message);
    return wire::ExitCode::kBadEnvironment;
  }
  ProofOptions proof = options.proof;
  proof.nproc = options.nproc;
  proof.python = options.python;
  proof.timeout_seconds = options.timeout_seconds;
  proof.json = options.json;
  proof.chinese = WantsChinese(options.language);
  return collectives ? ProveCollectivesHere(proof, *inventory) : CheckScriptHere(proof, *inventory);
}

// For the checks of the doctor on another node.
wire::ExitCode Listen(int port, const std::string& named) {
  const std::string node = named.empty() ? doctor::SystemCalls::OfThisMachine().HostName() : named;
  const auto addresses = net::ResolveHost(node, port);
  if (!addresses) {
    return Refuse(wire::ExitCode::kFailed,
                  addresses.error().message + "; name the address of this node with --address");
  }
  std::string token = base::Environment::OfThisProcess().Get(wire::kTokenVariable).value_or("");
  const bool made = token.empty();
  if (made) {
    for (const char byte : doctor::NewPeerNonce()) token += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  net::HostAddress address = addresses->front();
  if (!net::IsNumericAddress(node) && node != "localhost") {
    const auto reachable = doctor::ReachableAddress(node, address, doctor::SystemCalls::OfThisMachine().Interfaces());
    if (!reachable) return Refuse(wire::ExitCode::kFailed, reachable.error().message);
    const auto resolved = net::ResolveHost(*reachable, port);
    if (!resolved) return Refuse(wire::ExitCode::kFailed, resolved.error().message);
    address = resolved->front();
  }
  auto listener = doctor::PeerListener::Open(address, token);
  if (!listener) {
    base::Log(base::Severity::kError,
              listener.error().message + "; name another port with --listen, or another address with --address");
    return wire::ExitCode::kFailed;
  }
  const std::string at = address.Numeric();
  base::Log(base::Severity::kInfo,
            fmt::format("answering the doctors of other nodes on port {} of {}, TCP and UDP, for an hour or "
                        "until Ctrl-C. There: {}fulldeck doctor --only network --hosts {}:{}",
                        listener->port(), at, made ? fmt::format("{}={} ", wire::kTokenVariable, token) : "",
                        at.find(':') == std::string::npos ? at : "[" + at + "]", listener->port()));
  listener->Serve(kListenAtMost);
  return wire::ExitCode::kOk;
}

}  // namespace

Action AddDoctor(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "doctor", "Prove that this machine is fit for a run, or say what to mend");
  command.Flag("--deep", options->deep, "Also what takes longer than seconds: every card, every installed file");
  command
      .Option("--only", options->only,
              "Only these groups (machine, cards, stack, container, network, storage) or checks")
      .TypeName("GROUP");
  command.Flag("--json", options->json, "One JSON object for programs (docs/doctor.md)");
  command.Option("--lang", options->language, "Language of evidence and cures: en or zh; default: the locale's")
      .TypeName("en|zh")
      .OneOf({"en", "zh"});
  command.Option("--nproc", options->nproc, "Ranks that a run here would have; default: one for each visible card")
      .TypeName("N")
      .InRange(1, 4096);
  command.Option("--workers", options->workers, "Workers of each rank's data loader").TypeName("N").InRange(0, 4096);
  command.Option("--work-dir", options->work_dir, "Folder that the run would write to; default: this one")
      .TypeName("DIR")
      .NotEmpty("--work-dir: the name of the folder is empty");
  command.Option("--nnodes", options->nnodes, "Hosts of the run").TypeName("N").InRange(1, 4096);
  command
      .Option("--hosts", options->nodes,
              "The other hosts, each of which runs fulldeck doctor --listen PORT with the same FULLDECK_TOKEN")
      .TypeName("HOST[:PORT],...");
  command.Option("--python", options->python, "Interpreter of the ranks; default: $PYTHON_EXEC, else python3")
      .TypeName("EXE");
  command.Option("--timeout", options->timeout_seconds, "How long a card, an interpreter or a host may take")
      .TypeName("SECONDS")
      .ShowDefault()
      .InRange(0.1, 600.0);
  command
      .Option("--listen", options->listen,
              "Answer the doctors of other hosts that name this one in --hosts; check nothing")
      .TypeName("[PORT]")
      .ValueMayBeLeftOut(std::to_string(doctor::kPeerPort))
      .InRange(0, 65535);
  command
      .Option("--address", options->address,
              "Of --listen: the address of this node to listen on; default: that of its host name")
      .TypeName("ADDRESS")
      .NotEmpty("--address: the address is empty");
  command.Flag("--collectives", options->collectives,
               "Every collective and every pair of ranks, with values and speed, instead of the checks");
  command.Option("--sizes", options->proof.sizes, "Of --collectives: bytes of the whole buffer")
      .TypeName("SIZE,...")
      .ShowDefault();
  command
      .Option("--backend", options->proof.backend,
              "Of --collectives: fulldeck (its own engine), or one of torch.distributed: gloo, nccl, eccl, hccl ...")
      .TypeName("NAME")
      .ShowDefault()
      .NotEmpty("--backend: the name is empty");
  command.Option("--inject", options->proof.fault, "For tests: KIND:RANK:OPERATION[:PEER]").Hidden();
  command
      .Option("--script", options->proof.script,
              "Read, never run, a training script and its configs for known traps, instead of the checks")
      .TypeName("FILE [CONFIG...]");
  command.Flag("--list", options->list, "Print the checks as a table, and do nothing");
  command.Option("--root", options->root, "Read /proc, /sys and /dev below DIR: a recorded machine")
      .TypeName("DIR")
      .ExistingFolder();
  command.Footer(
      "Examples:\n"
      "  fulldeck doctor\n"
      "  fulldeck doctor --deep --nproc 8 --workers 4 --work-dir /data/run1\n"
      "  fulldeck doctor --only network storage --lang zh\n"
      "  fulldeck doctor --listen --address node2      on node2; then here, with the token that it prints:\n"
      "  FULLDECK_TOKEN=... fulldeck doctor --only network --nnodes 2 --hosts node2\n"
      "  fulldeck doctor --collectives --nproc 8\n"
      "  fulldeck doctor --collectives --backend nccl --python .venv/bin/python\n"
      "  fulldeck doctor --script train.py configs/segformer.py\n"
      "  fulldeck doctor --json | jq '.checks[] | select(.verdict == \"fail\")'\n"
      "Exit code: 0 nothing fails (a warning does not), 91 a check failed, 2 the command line is wrong.");
  return [options] {
    if (options->listen >= 0) return Listen(options->listen, options->address);
    if (options->collectives || !options->proof.script.empty()) return Prove(*options);
    return Examine(*options);
  };
}

}  // namespace fulldeck::cli
