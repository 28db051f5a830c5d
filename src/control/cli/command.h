// A command of fulldeck: declares its options (cli/options.h) and runs later. One file per command; app.cc lists them
// all. Only app.cc and options.cc include CLI11.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "job/launch/launch_flags.h"
#include "wire/exit_codes.h"

namespace fulldeck::cli {

// Runs the command after its options are parsed. Output for programs and tables goes to stdout; everything else is a
// line of base::Log.
using Action = std::function<wire::ExitCode()>;

// Logs each line of the message as an error and returns the code.
wire::ExitCode Refuse(wire::ExitCode code, std::string_view message);

// Adds the command to `app` and returns its action. The action owns the storage of the options.
Action AddTrain(CLI::App& app);
Action AddPredict(CLI::App& app);
Action AddDevices(CLI::App& app);
Action AddRun(CLI::App& app);
Action AddLaunch(CLI::App& app);
Action AddExplain(CLI::App& app);
Action AddDoctor(CLI::App& app);
Action AddBench(CLI::App& app);
Action AddBenchRank(CLI::App& app);
Action AddDoctorRank(CLI::App& app);
Action AddLogs(CLI::App& app);
Action AddPs(CLI::App& app);
Action AddStop(CLI::App& app);
Action AddTop(CLI::App& app);
Action AddStacks(CLI::App& app);
Action AddBundle(CLI::App& app);
Action AddConfig(CLI::App& app);
Action AddPatch(CLI::App& app);
Action AddCompletion(CLI::App& app);
Action AddHelp(CLI::App& app);
Action AddVendorHelper(CLI::App& app);
Action AddProbeCard(CLI::App& app);

// `fulldeck run` and its older form `fulldeck launch` follow torchrun's grammar, in which everything after the script
// belongs to the script. CLI11 lists them but does not parse them. `arguments` are those after the command.
int RunLaunch(job::LaunchStyle style, const std::vector<std::string>& arguments);

// nullptr if there is no command of that name.
const CLI::App* FindCommand(const CLI::App& app, const std::string& name);

// Names of the commands for users, for suggestions and completion.
std::vector<std::string> CommandNames(const CLI::App& app);

// The text of --help, for fulldeck itself or one of its commands.
std::string HelpText(const CLI::App& app);

// The topics of `fulldeck help`: the commands and the tables.
std::vector<std::string> HelpTopics(const CLI::App& app);

// Long option names of an app or command, without hidden ones: --json.
std::vector<std::string> OptionNames(const CLI::App& app);

}  // namespace fulldeck::cli
