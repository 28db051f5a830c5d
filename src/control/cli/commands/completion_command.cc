// fulldeck completion bash|zsh: a completion script for the shell, generated from the declared commands and options.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "doctor/check.h"
#include "job/launch/launch_file.h"

namespace fulldeck::cli {
namespace {

std::string Words(const std::vector<std::string>& words) {
  return base::Join(words, " ");
}

// Arguments of a command apart from options.
std::vector<std::string> Arguments(const CLI::App& app, const std::string& command) {
  if (command == "completion") return {"bash", "zsh"};
  if (command == "help") return HelpTopics(app);
  if (command == "bench") return {"collectives"};
  if (command == "config") return job::LaunchFileNames();
  if (command == "patch") return {"mmengine"};
  return {};
}

// Values of the options of a command.
std::vector<std::string> Values(const std::string& command) {
  std::vector<std::string> names;
  if (command != "doctor") return names;
  for (const doctor::Check& check : doctor::Checks()) {
    const std::string name(doctor::NameOf(check.group));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

std::vector<std::string> WordsAfter(const CLI::App& app, const std::string& command) {
  std::vector<std::string> words = OptionNames(*FindCommand(app, command));
  const std::vector<std::string> arguments = Arguments(app, command);
  const std::vector<std::string> values = Values(command);
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), values.begin(), values.end());
  return words;
}

std::vector<std::string> FirstWords(const CLI::App& app) {
  std::vector<std::string> words = CommandNames(app);
  const std::vector<std::string> options = OptionNames(app);
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

std::string Bash(const CLI::App& app) {
  std::string cases;
  for (const std::string& name : CommandNames(app)) {
    cases += fmt::format("    {}) words=\"{}\" ;;\n", name, Words(WordsAfter(app, name)));
  }
  return fmt::format(
      "# fulldeck completion for bash. Load it with: eval \"$(fulldeck completion bash)\"\n"
      "_fulldeck() {{\n"
      "  local words current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    words=\"{}\"\n"
      "  else\n"
      "    case \"${{COMP_WORDS[1]}}\" in\n{}"
      "    *) words=\"\" ;;\n"
      "    esac\n"
      "  fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _fulldeck fulldeck\n",
      Words(FirstWords(app)), cases);
}

std::string Zsh(const CLI::App& app) {
  std::string cases;
  for (const std::string& name : CommandNames(app)) {
    cases += fmt::format("    {}) compadd -- {} ;;\n", name, Words(WordsAfter(app, name)));
  }
  return fmt::format(
      "#compdef fulldeck\n"
      "# fulldeck completion for zsh. Load it with: eval \"$(fulldeck completion zsh)\"\n"
      "_fulldeck() {{\n"
      "  if (( CURRENT == 2 )); then\n"
      "    compadd -- {}\n"
      "    return\n"
      "  fi\n"
      "  case \"$words[2]\" in\n{}"
      "  esac\n"
      "}}\n"
      "compdef _fulldeck fulldeck\n",
      Words(FirstWords(app)), cases);
}

}  // namespace

Action AddCompletion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CommandOptions command(app, "completion", "Print a completion script for a shell");
  command.Option("SHELL", *shell, "bash or zsh").Required().OneOfShown({"bash", "zsh"});
  command.Footer("Example:\n  eval \"$(fulldeck completion bash)\"");
  return [&app, shell] {
    std::fputs((*shell == "bash" ? Bash(app) : Zsh(app)).c_str(), stdout);
    return wire::ExitCode::kOk;
  };
}

}  // namespace fulldeck::cli
