#include "cli/options.h"

#include <CLI/CLI.hpp>

namespace fulldeck::cli {

OptionRules& OptionRules::Required() {
  option_.required();
  return *this;
}

OptionRules& OptionRules::TypeName(const std::string& name) {
  option_.type_name(name);
  return *this;
}

OptionRules& OptionRules::ShowDefault() {
  option_.capture_default_str();
  return *this;
}

OptionRules& OptionRules::ValueMayBeLeftOut(const std::string& value_then) {
  option_.expected(0, 1)->default_str(value_then);
  return *this;
}

OptionRules& OptionRules::OneEachTime() {
  option_.allow_extra_args(false);
  return *this;
}

OptionRules& OptionRules::Hidden() {
  option_.group("");
  return *this;
}

OptionRules& OptionRules::OneOf(const std::vector<std::string>& values) {
  option_.check(CLI::IsMember(values).description(""));
  return *this;
}

OptionRules& OptionRules::OneOfShown(const std::vector<std::string>& values) {
  option_.check(CLI::IsMember(values));
  return *this;
}

template <typename T>
OptionRules& OptionRules::InRange(T lowest, T highest) {
  option_.check(CLI::Range(lowest, highest).description(""));
  return *this;
}
template OptionRules& OptionRules::InRange(int, int);
template OptionRules& OptionRules::InRange(long long, long long);
template OptionRules& OptionRules::InRange(double, double);

OptionRules& OptionRules::ExistingFolder() {
  option_.check(CLI::Validator(CLI::ExistingDirectory).description(""));
  return *this;
}

OptionRules& OptionRules::NotEmpty(const std::string& complaint) {
  option_.check(
      CLI::Validator([complaint](std::string& value) { return value.empty() ? complaint : std::string(); }, ""));
  return *this;
}

CommandOptions::CommandOptions(CLI::App& app, const std::string& name, const std::string& description)
    : command_(*app.add_subcommand(name, description)) {}

template <typename T>
OptionRules CommandOptions::Option(const std::string& names, T& value, const std::string& help) {
  return OptionRules(*command_.add_option(names, value, help));
}
template OptionRules CommandOptions::Option(const std::string&, std::string&, const std::string&);
template OptionRules CommandOptions::Option(const std::string&, std::vector<std::string>&, const std::string&);
template OptionRules CommandOptions::Option(const std::string&, int&, const std::string&);
template OptionRules CommandOptions::Option(const std::string&, long long&, const std::string&);
template OptionRules CommandOptions::Option(const std::string&, double&, const std::string&);

void CommandOptions::Flag(const std::string& names, bool& value, const std::string& help) {
  command_.add_flag(names, value, help);
}

void CommandOptions::ListedFlag(const std::string& names, const std::string& help, const std::string& group) {
  command_.add_flag(names, help)->group(group);
}

void CommandOptions::Footer(const std::string& text) {
  command_.footer(text);
}

void CommandOptions::Hide() {
  command_.group("");
}

void CommandOptions::TakeRestAsIs() {
  command_.prefix_command();
}

}  // namespace fulldeck::cli
