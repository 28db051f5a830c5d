// fulldeck help [TOPIC]: help on a command, and the tables that the documents are made from.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "wire/variables.h"

namespace fulldeck::cli {
namespace {

// A "|" inside a cell would end it.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char letter : text) {
    if (letter == '|') cell += '\\';
    cell += letter;
  }
  return cell;
}

std::string ExitCodesTable() {
  std::string text = "| code | name | meaning | what to do |\n|---|---|---|---|\n";
  for (const wire::ExitCodeRow& row : wire::ExitCodes()) {
    text += fmt::format("| {} | {} | {} | {} |\n", static_cast<int>(row.code), row.name, Cell(row.meaning),
                        Cell(row.what_to_do));
  }
  return text;
}

std::string VariablesTable() {
  std::string text = "| variable | meaning | example |\n|---|---|---|\n";
  for (const wire::VariableRow& row : wire::Variables()) {
    text += fmt::format("| {} | {} | `{}` |\n", row.name, Cell(row.meaning), row.example);
  }
  return text;
}

}  // namespace

std::vector<std::string> HelpTopics(const CLI::App& app) {
  std::vector<std::string> topics = CommandNames(app);
  topics.insert(topics.end(), {"exit-codes", "environment"});
  return topics;
}

Action AddHelp(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CommandOptions command(app, "help", "Explain a command, the exit codes or the environment variables");
  command.Option("TOPIC", *topic, "A command, exit-codes, or environment");
  command.Footer("Examples:\n  fulldeck help devices\n  fulldeck help exit-codes");
  return [&app, topic] {
    if (topic->empty()) {
      std::fputs(HelpText(app).c_str(), stdout);
      return wire::ExitCode::kOk;
    }
    if (*topic == "exit-codes" || *topic == "environment") {
      std::fputs((*topic == "environment" ? VariablesTable() : ExitCodesTable()).c_str(), stdout);
      return wire::ExitCode::kOk;
    }
    for (const std::string& name : CommandNames(app)) {
      if (name != *topic) continue;
      std::fputs(HelpText(*FindCommand(app, name)).c_str(), stdout);
      return wire::ExitCode::kOk;
    }
    const std::vector<std::string> topics = HelpTopics(app);
    const auto near = base::ClosestMatch(*topic, topics);
    base::Log(base::Severity::kError,
              fmt::format("there is no help on '{}'{} Topics: {}", base::Printable(*topic),
                          near ? fmt::format("; did you mean '{}'?", *near) : ".", base::Join(topics, ", ")));
    return wire::ExitCode::kUsage;
  };
}

}  // namespace fulldeck::cli
