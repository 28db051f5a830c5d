// fulldeck run, fulldeck launch, and torchrun: starts one rank per card and manages the ranks until they end.
#include <fmt/format.h>

#include <cstdio>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/version.h"
#include "job/launch/cluster.h"
#include "job/launch/launch_flags.h"
#include "launcher/launcher_proxy.h"

namespace fulldeck::cli {
namespace {

// Declares the flags for help and completion; ParseLaunchFlags parses them.
void DeclareFlags(CommandOptions& command) {
  for (const job::FlagRow& row : job::LaunchFlagTable()) {
    if (row.id != job::FlagId::kHelp) command.ListedFlag(row.names, row.help, row.group);
  }
}

Action Add(CLI::App& app, const char* name, const char* description) {
  CommandOptions command(app, name, description);
  command.TakeRestAsIs();
  DeclareFlags(command);
  return [] { return wire::ExitCode::kUsage; };
}

int Refuse(wire::ExitCode code, const std::string& message, job::LaunchStyle style) {
  const char* help = style == job::LaunchStyle::kTorchrun ? "torchrun --help"
                     : style == job::LaunchStyle::kLaunch ? "fulldeck launch --help"
                                                          : "fulldeck run --help";
  const bool ended = message.ends_with('?') || message.ends_with('.');
  base::Log(base::Severity::kError, fmt::format("{}{} See: {}", message, ended ? "" : ".", help));
  return static_cast<int>(code);
}

}  // namespace

Action AddRun(CLI::App& app) {
  return Add(app, "run", "Start a training script or program, one rank a card, and own it to its end");
}

Action AddLaunch(CLI::App& app) {
  return Add(app, "launch", "The same for scripts that expect --local-rank (torch.distributed.launch)");
}

int RunLaunch(job::LaunchStyle style, const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "--version") {
    std::puts((std::string("fulldeck ") + kVersion).c_str());
    return static_cast<int>(wire::ExitCode::kOk);
  }
  const base::Environment environment = base::Environment::OfThisProcess();
  auto flags = job::ParseLaunchFlags(style, arguments, environment);
  if (!flags) return Refuse(wire::ExitCode::kUsage, flags.error().message, style);
  if (flags->help) {
    std::fputs(job::LaunchHelp(style).c_str(), stdout);
    return static_cast<int>(wire::ExitCode::kOk);
  }
  const auto cluster = job::ReadCluster(environment);
  if (!cluster) return Refuse(wire::ExitCode::kBadEnvironment, cluster.error().message, style);
  if (*cluster) {
    const auto applied = job::ApplyCluster(**cluster, *flags);
    if (!applied) return Refuse(wire::ExitCode::kUsage, applied.error().message, style);
  }
  if (const auto hint = job::HintForLoneLauncher(environment); hint && !flags->nodes_given) {
    base::Log(base::Severity::kInfo, *hint);
  }
  const auto complete = job::CheckComplete(*flags);
  if (!complete) return Refuse(wire::ExitCode::kUsage, complete.error().message, style);
  return launcher::RunLauncherProxy(*flags, environment, *cluster);
}

}  // namespace fulldeck::cli
