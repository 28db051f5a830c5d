// How a command declares what it takes: CLI11 behind a small window, so that one file compiles it and not one for each
// command (it takes the compiler six seconds). A declaration reads as it did:
//
//   CommandOptions command(app, "explain", "Say which known failures a log shows");
//   command.Option("--lang", options->language, "Language of the causes").TypeName("en|zh").OneOf({"en", "zh"});
//
// Everything that is declared belongs to the app. The storage of a value must live as long as the app.
#pragma once

#include <string>
#include <vector>

// NOLINTNEXTLINE(readability-identifier-naming): CLI11's own
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fulldeck::cli {

// One option or argument. What a check says of a bad value is CLI11's; the help shows no check.
class OptionRules {
 public:
  explicit OptionRules(CLI::Option& option) : option_(option) {}

  OptionRules& Required();
  // What stands after the name in the help: "SECONDS". Empty: nothing, where an argument says enough by its name.
  OptionRules& TypeName(const std::string& name);
  // The help shows the value that the storage has now.
  OptionRules& ShowDefault();
  // The option may stand without a value, and then has this one.
  OptionRules& ValueMayBeLeftOut(const std::string& value_then);
  // An option of several values takes one each time it stands on the line, and no word behind that.
  OptionRules& OneEachTime();
  // Not in the help, not in completions.
  OptionRules& Hidden();

  OptionRules& OneOf(const std::vector<std::string>& values);
  // As OneOf, and the help lists the values.
  OptionRules& OneOfShown(const std::vector<std::string>& values);
  // T: int, long long or double.
  template <typename T>
  OptionRules& InRange(T lowest, T highest);
  OptionRules& ExistingFolder();
  // `complaint` is what is said of an empty value.
  OptionRules& NotEmpty(const std::string& complaint);

 private:
  CLI::Option& option_;
};

class CommandOptions {
 public:
  // Adds the command to `app`.
  CommandOptions(CLI::App& app, const std::string& name, const std::string& description);

  // `names`: "-f,--follow", "--rank", or "RUN" for an argument that has its place. T: std::string, int, long long,
  // double, or std::vector<std::string> for one that takes several values.
  template <typename T>
  OptionRules Option(const std::string& names, T& value, const std::string& help = "");
  void Flag(const std::string& names, bool& value, const std::string& help);
  // For the help alone, below the heading `group`.
  void ListedFlag(const std::string& names, const std::string& help, const std::string& group);

  // After the options in the help.
  void Footer(const std::string& text);
  // For options that several programs share (config/command_line.h).
  CLI::App& app() { return command_; }

  // Not in the help of fulldeck.
  void Hide();
  // What stands after the first argument that is no option of its own is not read.
  void TakeRestAsIs();

 private:
  CLI::App& command_;
};

}  // namespace fulldeck::cli
