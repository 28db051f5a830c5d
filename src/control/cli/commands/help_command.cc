// fulldeck help [TOPIC]: help on a command, and the tables from which the documents are generated.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "config/keys.h"
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

// One Markdown table for each table of the TOML file.
std::string ConfigTables() {
  std::string text;
  std::string last = "?";
  const config::Config defaults;
  for (const config::Key& key : config::Keys()) {
    const std::string_view name = key.name;
    const std::size_t dot = name.rfind('.');
    const std::string table(dot == std::string_view::npos ? "" : name.substr(0, dot));
    if (table != last) {
      if (!text.empty()) text += "\n";
      text += table.empty() ? "Above all tables:\n\n" : fmt::format("`[{}]`\n\n", table);
      text += "| key | value | default | meaning |\n|---|---|---|---|\n";
      last = table;
    }
    const std::string range = key.RangeToString();
    text += fmt::format("| `{}` | {}{} | `{}` | {}{} |\n", dot == std::string_view::npos ? name : name.substr(dot + 1),
                        Cell(key.TypeToString()), range.empty() ? "" : ", " + range, Cell(key.Get(defaults)),
                        Cell(key.description), key.rules.fixed ? " (†)" : "");
  }
  return text;
}

std::string Table(const std::string& topic) {
  if (topic == "recipe") return ConfigTables();
  return topic == "environment" ? VariablesTable() : ExitCodesTable();
}

}  // namespace

std::vector<std::string> HelpTopics(const CLI::App& app) {
  std::vector<std::string> topics = CommandNames(app);
  topics.insert(topics.end(), {"exit-codes", "environment", "recipe"});
  return topics;
}

Action AddHelp(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CommandOptions command(app, "help", "Explain a command, the exit codes, the environment variables or the recipe");
  command.Option("TOPIC", *topic, "A command, exit-codes, environment, or recipe");
  command.Footer("Examples:\n  fulldeck help devices\n  fulldeck help exit-codes");
  return [&app, topic] {
    if (topic->empty()) {
      std::fputs(HelpText(app).c_str(), stdout);
      return wire::ExitCode::kOk;
    }
    if (*topic == "exit-codes" || *topic == "environment" || *topic == "recipe") {
      std::fputs(Table(*topic).c_str(), stdout);
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
