#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/version.h"

namespace fulldeck::cli {
namespace {

int Code(wire::ExitCode code) {
  return static_cast<int>(code);
}

int RefuseUsage(std::string_view message) {
  return Code(Refuse(wire::ExitCode::kUsage, message));
}

// Rejects a word that is not a command but is in the place of one.
int RefuseUnknownCommand(const CLI::App& app, const std::string& word) {
  const auto near = base::ClosestMatch(word, CommandNames(app));
  return RefuseUsage(fmt::format("there is no command '{}'{} See: fulldeck --help", base::Printable(word),
                                 near ? fmt::format("; did you mean 'fulldeck {}'?", *near) : "."));
}

int RefuseUnknownOption(const CLI::App& command, const std::string& word) {
  const bool is_option = word.starts_with("-");
  const auto near = is_option ? base::ClosestMatch(word.substr(0, word.find('=')), OptionNames(command)) : std::nullopt;
  return RefuseUsage(fmt::format("{} '{}'{} See: {} --help", is_option ? "unknown option" : "unexpected argument",
                                 base::Printable(word), near ? fmt::format("; did you mean {}?", *near) : ".",
                                 command.get_parent() == nullptr ? "fulldeck" : "fulldeck " + command.get_name()));
}

}  // namespace

int CheckOutput(int code) {
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::ferror(stdout) == 0) return code;
  base::Log(base::Severity::kError, flushed ? "cannot write to standard output: what was printed is not complete"
                                            : base::ErrnoError("cannot write to standard output", error).message);
  return code == Code(wire::ExitCode::kOk) ? Code(wire::ExitCode::kFailed) : code;
}

wire::ExitCode Refuse(wire::ExitCode code, std::string_view message) {
  for (const std::string_view line : base::Split(message, '\n')) base::Log(base::Severity::kError, line);
  return code;
}

const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string HelpText(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.help() : app.help("fulldeck");
}

int Run(int argc, char** argv) {
  const std::string_view own_name = argc > 0 ? argv[0] : "";
  if (own_name.substr(own_name.rfind('/') + 1) == "torchrun") {
    return RunLaunch(job::LaunchStyle::kTorchrun, {argv + 1, argv + argc});
  }
  const std::string_view first_word = argc > 1 ? argv[1] : "";
  if (first_word == "run") return RunLaunch(job::LaunchStyle::kFulldeck, {argv + 2, argv + argc});
  if (first_word == "launch") return RunLaunch(job::LaunchStyle::kLaunch, {argv + 2, argv + argc});
  CLI::App app("fulldeck puts every card of a server to work on one training run, and proves it.", "fulldeck");
  app.set_version_flag("--version", std::string("fulldeck ") + kVersion, "Print the version and end");
  app.set_help_flag("-h,--help", "Print this help and end");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  fulldeck run train.py --epochs 3              one rank a card, as torchrun would start it\n"
      "  fulldeck train configs/demo.toml              the vision job that a recipe describes\n"
      "  fulldeck devices                              the cards of this machine\n"
      "  FULLDECK_SIMULATE=gcu:8 fulldeck devices      a simulated server of eight\n"
      "  fulldeck ps                                   your runs; then: logs -f, top, stop\n"
      "  fulldeck doctor                               is this machine fit for a run, and what to mend\n"
      "  fulldeck explain train.log                    known failures in a log, and what to do\n"
      "  fulldeck help exit-codes                      what an exit code means");

  std::vector<std::pair<const CLI::App*, Action>> actions;
  const auto add = [&](Action (*adder)(CLI::App&)) {
    Action action = adder(app);
    actions.emplace_back(app.get_subcommands([](const CLI::App*) { return true; }).back(), std::move(action));
  };
  add(AddRun);
  add(AddLaunch);
  add(AddTrain);
  add(AddPredict);
  add(AddDevices);
  add(AddPs);
  add(AddTop);
  add(AddLogs);
  add(AddStop);
  add(AddStacks);
  add(AddBundle);
  add(AddExplain);
  add(AddDoctor);
  add(AddBench);
  add(AddConfig);
  add(AddPatch);
  add(AddCompletion);
  add(AddHelp);
  add(AddVendorHelper);
  add(AddProbeCard);
  add(AddBenchRank);
  add(AddDoctorRank);

  if (argc < 2) {
    std::fputs(HelpText(app).c_str(), stdout);
    return Code(wire::ExitCode::kUsage);
  }
  const std::string first = argv[1];
  if (!first.starts_with("-") && FindCommand(app, first) == nullptr) return RefuseUnknownCommand(app, first);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    std::fputs(HelpText(chosen.empty() ? app : *chosen.back()).c_str(), stdout);
    return Code(wire::ExitCode::kOk);
  } catch (const CLI::CallForVersion& version) {
    std::puts(version.what());
    return Code(wire::ExitCode::kOk);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const CLI::App& command = chosen.empty() ? app : *chosen.back();
    const std::vector<std::string> extras = command.remaining();
    if (!extras.empty()) return RefuseUnknownOption(command, extras.front());
    return RefuseUsage(fmt::format("{}. See: fulldeck {}--help", base::Printable(error.what()),
                                   chosen.empty() ? "" : command.get_name() + " "));
  }
  for (const auto& [command, action] : actions) {
    if (command->parsed()) return Code(action());
  }
  return Code(wire::ExitCode::kUsage);
}

}  // namespace fulldeck::cli
