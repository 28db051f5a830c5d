// fulldeck ps: the runs of this user on this machine, once or repeatedly.
#include <memory>

#include "base/environment.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "cli/watch.h"
#include "job/runs/run_registry.h"
#include "job/runs/run_status.h"

namespace fulldeck::cli {
namespace {

struct Options {
  bool json = false;
  double watch_seconds = 0;
};

class PsCommand {
 public:
  explicit PsCommand(const Options& options) : options_(options), registry_(base::Environment::OfThisProcess()) {}

  wire::ExitCode Run() {
    if (options_.watch_seconds <= 0) return Print(Text());
    return Watch(Seconds(options_.watch_seconds), [this](const auto&) { return PrintFrame(Text()); });
  }

 private:
  std::string Text() {
    std::vector<std::string> warnings;
    std::vector<job::RunStatus> runs;
    for (const auto& entry : registry_.List(&warnings)) runs.push_back(reader_.Read(entry));
    // Warn once, not every second.
    if (!warned_) WarnOf(warnings);
    warned_ = true;
    if (options_.json) return RunsJson(runs, nullptr);
    return RunsText(runs, StdoutWantsColor()) + (options_.watch_seconds > 0 ? "\n" : "");
  }

  const Options options_;
  const job::RunRegistry registry_;
  job::RunStatusReader reader_;
  bool warned_ = false;
};

}  // namespace

Action AddPs(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "ps", "Show your runs on this machine, and what dead launchers left behind");
  command.Flag("--json", options->json, "One JSON object for programs (docs/runs.md)");
  command.Option("--watch", options->watch_seconds, "Show it again every SECONDS (default 1) until Ctrl-C")
      .TypeName("[SECONDS]")
      .ValueMayBeLeftOut("1")
      .InRange(0.1, 86400.0);
  command.Footer(
      "Examples:\n"
      "  fulldeck ps\n"
      "  fulldeck ps --watch\n"
      "  fulldeck ps --json | jq '.runs[].run_id'");
  return [options] { return PsCommand(*options).Run(); };
}

}  // namespace fulldeck::cli
