// fulldeck top: the ranks of your runs and their cards, one table per second.
#include <memory>
#include <optional>
#include <thread>

#include "base/environment.h"
#include "base/log.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "device/inventory.h"
#include "job/runs/run_registry.h"
#include "job/runs/run_status.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;

struct Options {
  std::string run;
  bool once = false;
  bool json = false;
  double interval_seconds = 1;
};

class TopCommand {
 public:
  explicit TopCommand(const Options& options)
      : options_(options),
        registry_(base::Environment::OfThisProcess()),
        inventory_reader_(device::InventoryOptions()) {}

  ExitCode Run() {
    if (options_.once) return ShowOnce();
    return Watch(Seconds(options_.interval_seconds), [this](const auto& end) {
      const auto runs = ReadRuns();
      if (!runs) return Failed(runs.error());
      if (runs->empty()) {
        end();
        return ExitCode::kOk;
      }
      const auto text = Text(*runs);
      if (!text) return BadEnvironment(text.error());
      return PrintFrame(options_.json ? *text : *text + "\n");
    });
  }

 private:
  // Rates need two readings.
  ExitCode ShowOnce() {
    const auto first = ReadRuns();
    if (!first) return Failed(first.error());
    std::this_thread::sleep_for(Seconds(options_.interval_seconds));
    const auto runs = ReadRuns();
    if (!runs) return Failed(runs.error());
    const auto text = Text(runs->empty() ? *first : *runs);
    return text ? Print(*text) : BadEnvironment(text.error());
  }

  // Empty if the runs that were shown have ended; an error if there was none at the start.
  base::Result<std::vector<job::RunStatus>> ReadRuns() {
    std::vector<job::RunRegistry::Entry> entries;
    base::Error none{"no run of yours is running on this machine"};
    if (options_.run.empty()) {
      for (const auto& entry : registry_.List()) {
        if (entry.alive) entries.push_back(entry);
      }
    } else {
      auto found = registry_.FindAll(options_.run);
      if (found) entries = std::move(*found);
      if (!found) none = found.error();
    }
    if (entries.empty() && !shown_) return none;
    if (entries.empty()) {
      Log(Severity::kInfo, options_.run.empty() ? "all runs have ended" : "run " + last_name_ + " has ended");
      return std::vector<job::RunStatus>();
    }
    shown_ = true;
    last_name_ = entries.front().record.run_id;
    std::vector<job::RunStatus> runs;
    for (const auto& entry : entries) runs.push_back(reader_.Read(entry));
    return runs;
  }

  base::Result<std::string> Text(const std::vector<job::RunStatus>& runs) {
    bool any_card = false;
    for (const job::RunStatus& run : runs) {
      for (const auto& card : run.entry.record.cards) any_card = any_card || card.has_value();
    }
    std::optional<device::Inventory> inventory;
    if (any_card) {
      auto read = inventory_reader_.Read();
      if (!read) return read.error();
      inventory = std::move(*read);
    }
    const device::Inventory* cards = inventory ? &*inventory : nullptr;
    if (options_.json) return RunsJson(runs, cards);
    std::string text;
    for (const job::RunStatus& run : runs) {
      if (!text.empty()) text += "\n";
      text += RanksText(run, cards, StdoutWantsColor());
    }
    return text;
  }

  static ExitCode Failed(const base::Error& error) {
    Log(Severity::kError, error.message);
    return ExitCode::kFailed;
  }
  static ExitCode BadEnvironment(const base::Error& error) {
    Log(Severity::kError, error.message);
    return ExitCode::kBadEnvironment;
  }

  const Options options_;
  const job::RunRegistry registry_;
  device::InventoryReader inventory_reader_;
  job::RunStatusReader reader_;
  bool shown_ = false;
  std::string last_name_;
};

}  // namespace

Action AddTop(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "top", "Show the ranks of your runs and what their cards do, every second");
  command.Option("RUN", options->run, "Run id, beginning of one, or run directory; default: all your runs")
      .TypeName("");
  command.Flag("--once", options->once, "One table (rates are measured over one interval), then end");
  command.Flag("--json", options->json, "JSON objects for programs (docs/runs.md)");
  command.Option("--interval", options->interval_seconds, "Time between two tables")
      .TypeName("SECONDS")
      .ShowDefault()
      .InRange(0.1, 86400.0);
  command.Footer(
      "Examples:\n"
      "  fulldeck top\n"
      "  fulldeck top 20260401-1 --interval 5\n"
      "  fulldeck top --once --json | jq '.runs[].ranks[].samples_per_second'");
  return [options] { return TopCommand(*options).Run(); };
}

}  // namespace fulldeck::cli
