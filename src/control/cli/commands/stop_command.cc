// fulldeck stop: ends runs, or the processes that hold a card.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/confirm.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "device/inventory.h"
#include "job/cards/card_holders.h"
#include "job/runs/process_signal.h"
#include "job/runs/run_registry.h"
#include "job/runs/stop_run.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;
using Entries = std::vector<job::RunRegistry::Entry>;

struct Options {
  std::vector<std::string> runs;
  bool all = false;
  std::string holders_of;
  bool yes = false;
  double timeout_seconds = -1;
};

constexpr std::chrono::seconds kHolderGrace{5};
constexpr std::chrono::seconds kKillTimeout{5};

// ---- runs ----

ExitCode StopEntries(const job::RunRegistry& registry, const Entries& entries, const Options& options) {
  job::StopOptions stop;
  if (options.timeout_seconds >= 0) stop.timeout = Seconds(options.timeout_seconds);
  stop.log_line = [](const std::string& sentence) { Log(Severity::kInfo, sentence); };
  ExitCode code = ExitCode::kOk;
  for (const job::StoppedRun& run : job::StopRuns(registry, entries, stop)) {
    Log(run.ok ? Severity::kInfo : Severity::kError, fmt::format("run {}: {}", run.run_id, run.message));
    if (!run.ok) code = ExitCode::kFailed;
  }
  return code;
}

ExitCode StopAll(const job::RunRegistry& registry, const Options& options) {
  std::vector<std::string> warnings;
  const Entries entries = registry.List(&warnings);
  WarnOf(warnings);
  if (entries.empty()) Log(Severity::kInfo, "no run of yours is on this machine");
  return StopEntries(registry, entries, options);
}

ExitCode StopNamed(const job::RunRegistry& registry, const Options& options) {
  Entries entries;
  std::set<std::string> paths;
  const std::vector<std::string> names = options.runs.empty() ? std::vector<std::string>{""} : options.runs;
  for (const std::string& name : names) {
    const auto found = registry.FindAll(name);
    if (!found) {
      // If one of the names is wrong, stop nothing: it may be a typing error.
      return Refuse(ExitCode::kFailed,
                    found.error().message + (options.runs.empty() ? " See also: fulldeck stop --all" : ""));
    }
    for (const auto& entry : *found) {
      if (paths.insert(entry.path).second) entries.push_back(entry);
    }
  }
  return StopEntries(registry, entries, options);
}

// ---- holders of a card ----

std::string HoldersTable(const std::vector<job::CardHolder>& holders, bool colors) {
  base::TextTable table;
  table.AddColumn("PID", base::Align::kRight);
  table.AddColumn("OWNER", base::Align::kLeft);
  table.AddColumn("MEMORY", base::Align::kRight);
  table.AddColumn("RUN", base::Align::kLeft);
  table.AddColumn("COMMAND", base::Align::kLeft);
  for (const job::CardHolder& each : holders) {
    const device::Holder& holder = each.holder;
    table.AddRow({{std::to_string(holder.pid)},
                  {holder.user.value_or(base::kAbsent)},
                  {holder.memory_bytes ? base::FormatByteSize(*holder.memory_bytes) : base::kAbsent},
                  {each.run_id.value_or(base::kAbsent)},
                  {holder.command.value_or(base::kAbsent)}});
  }
  return table.Render(colors);
}

ExitCode ReportOutcome(const job::CardHolder& holder, job::StopOutcome outcome) {
  const int pid = holder.process.pid;
  switch (outcome) {
    case job::StopOutcome::kEnded:
      Log(Severity::kInfo, fmt::format("process {} has ended", pid));
      return ExitCode::kOk;
    case job::StopOutcome::kKilled:
      Log(Severity::kInfo, fmt::format("process {} did not end within {} s and was killed", pid, kHolderGrace.count()));
      return ExitCode::kOk;
    case job::StopOutcome::kGone:
      Log(Severity::kInfo, fmt::format("process {} had ended already", pid));
      return ExitCode::kOk;
    case job::StopOutcome::kRefused:
      return Refuse(ExitCode::kFailed,
                    fmt::format("process {} is not yours to stop: permission is lacking. Ask {}, or root", pid,
                                holder.holder.user.value_or("its owner")));
    case job::StopOutcome::kUnkillable:
      return Refuse(ExitCode::kFailed,
                    fmt::format("process {} does not end, not even after SIGKILL: it hangs in the kernel, often in the "
                                "card's driver. Reset the card, or restart the machine",
                                pid));
  }
  return ExitCode::kFailed;
}

ExitCode StopHolders(const job::RunRegistry& registry, const Options& options) {
  device::InventoryReader reader((device::InventoryOptions()));
  const auto inventory = reader.Read();
  if (!inventory) return Refuse(ExitCode::kBadEnvironment, inventory.error().message);
  const auto card = job::FindCard(*inventory, options.holders_of);
  if (!card) return Refuse(ExitCode::kUsage, card.error().message);
  const auto holders = job::HoldersOf(**card, registry.List());
  if (!holders) return Refuse(ExitCode::kFailed, holders.error().message);
  const std::string name = device::NameOf(**card);
  if (holders->empty()) return Print(fmt::format("Nobody holds {}.\n", name));

  if (Print(fmt::format("{} is held by:\n{}", name, HoldersTable(*holders, StdoutWantsColor()))) != ExitCode::kOk) {
    return ExitCode::kFailed;
  }
  ExitCode code = ExitCode::kOk;
  std::vector<job::CardHolder> to_stop;
  std::set<std::string> runs;
  for (const job::CardHolder& holder : *holders) {
    if (holder.run_id) runs.insert(*holder.run_id);
    if (!holder.certain) {
      code =
          Refuse(ExitCode::kFailed,
                 fmt::format("process {} is left alone: this is a container, and the driver may have told the pid that "
                             "the process has on the host. Stop it there",
                             holder.process.pid));
      continue;
    }
    if (!holder.is_caller) {
      to_stop.push_back(holder);
      continue;
    }
    code = Refuse(ExitCode::kFailed,
                  fmt::format("process {} is left alone: fulldeck itself was started from it", holder.process.pid));
  }
  for (const std::string& run : runs) {
    Log(Severity::kInfo,
        fmt::format("a rank of run {0} is among them; fulldeck stop {0} ends that run as a whole", run));
  }
  if (to_stop.empty()) return code;
  if (!options.yes) {
    if (isatty(STDIN_FILENO) != 1) {
      return Refuse(ExitCode::kUsage,
                    "nothing was stopped: there is no terminal to ask on. Give --yes to stop them "
                    "without being asked");
    }
    const std::string question = to_stop.size() == 1 ? std::string("stop this process?")
                                                     : fmt::format("stop these {} processes?", to_stop.size());
    if (!Confirm(question)) return Refuse(ExitCode::kFailed, "nothing was stopped");
  }
  std::vector<wire::ProcessIdentity> processes;
  for (const job::CardHolder& holder : to_stop) processes.push_back(holder.process);
  const auto outcomes = job::StopProcesses(processes, kHolderGrace, kKillTimeout);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (ReportOutcome(to_stop[i], outcomes[i]) != ExitCode::kOk) code = ExitCode::kFailed;
  }
  return code;
}

ExitCode Stop(const Options& options) {
  const job::RunRegistry registry(base::Environment::OfThisProcess());
  if (options.all && !options.runs.empty())
    return Refuse(ExitCode::kUsage, "give --all or the names of runs, not both");
  if (options.holders_of.empty()) {
    return options.all ? StopAll(registry, options) : StopNamed(registry, options);
  }
  if (options.all || !options.runs.empty() || options.timeout_seconds >= 0) {
    return Refuse(ExitCode::kUsage, "--holders stops the processes on a card; it goes with --yes alone");
  }
  return StopHolders(registry, options);
}

}  // namespace

Action AddStop(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "stop", "Stop runs of yours, or the processes that hold a card");
  command.Option("RUN", options->runs, "Run ids, beginnings of them, or run directories; default: the only run")
      .TypeName("");
  command.Flag("--all", options->all, "All your runs on this machine, and what dead launchers left behind");
  command.Option("--timeout", options->timeout_seconds, "Kill what has not ended by then; default: the run's grace + 5")
      .TypeName("SECONDS")
      .InRange(0.0, 86400.0);
  command.Option("--holders", options->holders_of, "Show who holds CARD (gcu:3), ask, and stop these processes")
      .TypeName("CARD")
      .NotEmpty("names no card");
  command.Flag("--yes", options->yes, "With --holders: do not ask");
  command.Footer(
      "Examples:\n"
      "  fulldeck stop\n"
      "  fulldeck stop 20260401-1\n"
      "  fulldeck stop --all --timeout 10\n"
      "  fulldeck stop --holders gcu:3\n"
      "Processes are found by what was recorded of them (pid and start time), never by name. Also cleans up after a "
      "launcher\n"
      "that was killed: its ranks, its cgroups, its entry.");
  return [options] { return Stop(*options); };
}

}  // namespace fulldeck::cli
