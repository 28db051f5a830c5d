// fulldeck stacks: the current stack of every thread of a running run.
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_stacks.h"
#include "cli/watch.h"
#include "job/runs/run_logs.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;

struct Options {
  std::string run;
  int rank = -1;
  bool json = false;
};

// Why a run that is not running has no stacks, based on what is found of it on disk.
std::string WhyNotRunning(const job::RunRegistry& registry, const std::string& which, const std::string& not_found) {
  struct stat facts {};
  if (!which.empty() && stat(which.c_str(), &facts) == 0 && facts.st_uid != getuid() && getuid() != 0) {
    const passwd* const owner = getpwuid(facts.st_uid);
    return fmt::format("{} is a run of {}: only that user can ask its ranks", base::Printable(which),
                       owner != nullptr ? base::Printable(owner->pw_name) : fmt::format("user {}", facts.st_uid));
  }
  std::error_code ignored;
  const auto ended = job::FindRunLogs(registry, which, std::filesystem::current_path(ignored).string());
  if (which.empty() || !ended || ended->entry) return not_found;
  return fmt::format(
      "run {} is over: it has no processes any more. What it said: fulldeck logs {}; stacks that were "
      "saved while it ran: {}/stacks-*.txt",
      ended->name, base::Printable(which), base::Printable(ended->directory));
}

ExitCode Show(const Options& options) {
  const job::RunRegistry registry(base::Environment::OfThisProcess());
  const auto entries = registry.FindAll(options.run);
  if (!entries) return Refuse(ExitCode::kFailed, WhyNotRunning(registry, options.run, entries.error().message));
  const auto rank = options.rank >= 0 ? std::optional(options.rank) : std::nullopt;
  std::vector<diagnosis::StackTarget> targets;
  std::optional<base::Error> not_here;
  std::optional<job::RunRecord> run;
  for (const auto& entry : *entries) {
    if (!entry.alive) continue;
    if (!run) run = entry.record;
    auto found = StackTargets(entry, rank);
    if (!found) not_here = found.error();
    if (found) targets.insert(targets.end(), found->begin(), found->end());
  }
  if (!run) {
    const std::string& id = entries->front().record.run_id;
    return Refuse(
        ExitCode::kFailed,
        fmt::format("run {} is over: its launcher is gone. Clean up what it left with: fulldeck stop {}", id, id));
  }
  if (targets.empty()) {
    return Refuse(ExitCode::kFailed,
                  not_here ? not_here->message : fmt::format("run {} has no rank on this host yet", run->run_id));
  }
  const auto ranks = CollectStacks(std::move(targets));
  if (!ranks) return Refuse(ExitCode::kFailed, "stopped before all ranks had answered");
  const auto saved = diagnosis::SaveStacks(run->directory, *ranks);
  if (!saved) Log(Severity::kWarning, "the stacks are shown and not saved: " + saved.error().message);
  const auto path = saved ? std::optional(*saved) : std::nullopt;
  std::string text;
  std::size_t complete = 0;
  for (const auto& each : *ranks) {
    text += base::Join(each.Lines(), "\n") + "\n\n";
    if (each.complete()) ++complete;
  }
  if (Print(options.json ? StacksJson(run->run_id, path, *ranks) : text) != ExitCode::kOk) return ExitCode::kFailed;
  if (path) Log(Severity::kInfo, "saved, with nothing left out, in " + base::Printable(*path));
  if (complete == ranks->size()) return ExitCode::kOk;
  return Refuse(ExitCode::kFailed,
                fmt::format("{} of {} ranks told their stacks; the others are shown with what the kernel tells of them",
                            complete, ranks->size()));
}

}  // namespace

Action AddStacks(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "stacks", "Show where every thread of a running run stands now: Python and C++");
  command.Option("RUN", options->run, "Run id, beginning of one, or run directory; default: the only run").TypeName("");
  command.Option("--rank", options->rank, "This rank alone, counted over all hosts").TypeName("N").InRange(0, 1 << 30);
  command.Flag("--json", options->json, "One JSON object for programs (docs/stacks.md)");
  command.Footer(
      "Examples:\n"
      "  fulldeck stacks\n"
      "  fulldeck stacks 20260401-1 --rank 3\n"
      "  fulldeck stacks --json | jq '.ranks[].threads[0].python[0]'\n"
      "The ranks write their stacks themselves and go on; no debugger is needed. A stopped rank runs for a moment. All "
      "of it\n"
      "is saved as stacks-N.txt in the run directory.");
  return [options] { return Show(*options); };
}

}  // namespace fulldeck::cli
