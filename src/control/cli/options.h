// How a command declares its options: a small interface to CLI11, so that only one file compiles CLI11 and not one
// per command (it takes the compiler six seconds). A declaration looks like this:
//
//   CommandOptions command(app, "explain", "Say which known failures a log shows");
//   command.Option("--lang", options->language, "Language of the causes").TypeName("en|zh").OneOf({"en", "zh"});
//
// The app owns everything that is declared. The storage of a value must live as long as the app.
#pragma once

#include <string>
#include <vector>

// NOLINTNEXTLINE(readability-identifier-naming): CLI11's own
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fulldeck::cli {

// One option or argument. CLI11 generates the error messages of checks; the help does not show checks.
class OptionRules {
 public:
  explicit OptionRules(CLI::Option& option) : option_(option) {}

  OptionRules& Required();
  // The text after the name in the help: "SECONDS". Empty: none, if the name of an argument is clear enough.
  OptionRules& TypeName(const std::string& name);
  // The help shows the value that the storage has at this moment.
  OptionRules& ShowDefault();
  // The option may be given without a value, and then has this one.
  OptionRules& ValueMayBeLeftOut(const std::string& value_then);
  // An option with several values takes one value per occurrence.
  OptionRules& OneEachTime();
  // Neither in the help nor in completions.
  OptionRules& Hidden();

  OptionRules& OneOf(const std::vector<std::string>& values);
  // As OneOf, and the help lists the values.
  OptionRules& OneOfShown(const std::vector<std::string>& values);
  // T: int, long long or double.
  template <typename T>
  OptionRules& InRange(T lowest, T highest);
  OptionRules& ExistingFolder();
  // `complaint` is the error message for an empty value.
  OptionRules& NotEmpty(const std::string& complaint);

 private:
  CLI::Option& option_;
};

class CommandOptions {
 public:
  // Adds the command to `app`.
  CommandOptions(CLI::App& app, const std::string& name, const std::string& description);

  // `names`: "-f,--follow", "--rank", or "RUN" for a positional argument. T: std::string, int, long long, double, or
  // std::vector<std::string> for several values.
  template <typename T>
  OptionRules Option(const std::string& names, T& value, const std::string& help = "");
  void Flag(const std::string& names, bool& value, const std::string& help);
  // For the help only, below the heading `group`.
  void ListedFlag(const std::string& names, const std::string& help, const std::string& group);

  // After the options in the help.
  void Footer(const std::string& text);
  // For options that several programs share (config/command_line.h).
  CLI::App& app() { return command_; }

  // Hides the command in the help of fulldeck.
  void Hide();
  // Everything after the first positional argument is passed through without parsing.
  void TakeRestAsIs();

 private:
  CLI::App& command_;
};

}  // namespace fulldeck::cli
