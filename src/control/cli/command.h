// A command of fulldeck: declares its options (cli/options.h), and later runs. One file a command; app.cc lists them
// all. CLI11 itself is included by app.cc and options.cc alone.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "job/launch/launch_flags.h"
#include "wire/exit_codes.h"

namespace fulldeck::cli {

// What the command does once its options are read. Output for programs and tables goes to stdout, everything else is a
// line of base::Log.
using Action = std::function<wire::ExitCode()>;

// Says why as an error, each line of it, and gives the code back.
wire::ExitCode Refuse(wire::ExitCode code, std::string_view message);

// Adds the command to `app` and returns what it does. The options' storage belongs to the action.
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
// belongs to the script: they are not parsed by CLI11, which only lists them. `arguments` stand after the command.
int RunLaunch(job::LaunchStyle style, const std::vector<std::string>& arguments);

// nullptr when there is none of that name.
const CLI::App* FindCommand(const CLI::App& app, const std::string& name);

// Names of the commands that people use, for suggestions and completion.
std::vector<std::string> CommandNames(const CLI::App& app);

// What --help prints: of fulldeck itself, or of one of its commands.
std::string HelpText(const CLI::App& app);

// What `fulldeck help` can be asked about: the commands and the tables.
std::vector<std::string> HelpTopics(const CLI::App& app);

// Long option names of an app or command, without those that are hidden from people: --json.
std::vector<std::string> OptionNames(const CLI::App& app);

}  // namespace fulldeck::cli
