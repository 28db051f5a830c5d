#include "job/launch/launch_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace fulldeck::job {
namespace {

// Long enough for any reasonable value; keeps messages readable.
constexpr std::size_t kMaxShownValue = 120;

std::string Shown(std::string_view text) {
  std::string shown = base::Printable(text.substr(0, kMaxShownValue));
  if (text.size() > kMaxShownValue) shown += "…";
  return shown;
}

// Converts underscores in the flag's own name; the part after '=' is unchanged.
std::string WithDashes(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

const FlagRow* FindExact(std::string_view name) {
  const std::string dashed = name.starts_with("--") ? WithDashes(name) : std::string(name);
  for (const FlagRow& row : LaunchFlagTable()) {
    for (const std::string_view spelling : base::Split(row.names, ',')) {
      if (spelling == dashed) return &row;
    }
  }
  return nullptr;
}

std::vector<const FlagRow*> FindByStart(std::string_view start) {
  const std::string dashed = WithDashes(start);
  std::vector<const FlagRow*> rows;
  for (const FlagRow& row : LaunchFlagTable()) {
    if (row.LongName().starts_with(dashed)) rows.push_back(&row);
  }
  return rows;
}

// A number may be the value of a flag although it begins with a dash.
bool LooksLikeNegativeNumber(std::string_view text) {
  return text.size() > 1 && text[0] == '-' &&
         base::ParseDecimal(text[1] == '.' ? "0" + std::string(text.substr(1)) : std::string(text.substr(1)));
}

struct Token {
  enum class Kind { kText, kFlag, kUnknownFlag, kAmbiguous };
  Kind kind = Kind::kText;
  const FlagRow* row = nullptr;
  std::optional<std::string> value;        // after '=' or attached to a short flag
  std::vector<const FlagRow*> candidates;  // of an ambiguous abbreviation
};

Token Read(const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-') return {};
  if (const FlagRow* row = FindExact(argument)) return {Token::Kind::kFlag, row, std::nullopt, {}};
  const auto equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  const auto value = equals == std::string::npos ? std::nullopt : std::optional(argument.substr(equals + 1));
  if (value) {
    if (const FlagRow* row = FindExact(name)) return {Token::Kind::kFlag, row, value, {}};
  }
  if (name.starts_with("--")) {
    std::vector<const FlagRow*> rows = FindByStart(name);
    // An abbreviation that torchrun accepts has the same meaning here, even if flags of fulldeck begin alike.
    const auto is_torchruns = [](const FlagRow* row) { return row->is_torchruns; };
    if (rows.size() > 1 && std::count_if(rows.begin(), rows.end(), is_torchruns) == 1) {
      rows = {*std::find_if(rows.begin(), rows.end(), is_torchruns)};
    }
    if (rows.size() == 1) return {Token::Kind::kFlag, rows[0], value, {}};
    if (rows.size() > 1) return {Token::Kind::kAmbiguous, nullptr, value, rows};
  } else if (const FlagRow* row = FindExact(argument.substr(0, 2))) {
    return {Token::Kind::kFlag, row, argument.substr(2), {}};
  }
  if (LooksLikeNegativeNumber(argument) || argument.find(' ') != std::string::npos) return {};
  return {Token::Kind::kUnknownFlag, nullptr, std::nullopt, {}};
}

base::Error UnknownFlag(const std::string& argument) {
  const std::string name = WithDashes(argument.substr(0, argument.find('=')));
  std::vector<std::string> names;
  for (const FlagRow& row : LaunchFlagTable()) names.push_back(row.LongName());
  const auto near = base::ClosestMatch(name, names);
  return {fmt::format("unknown flag '{}'{}. Flags of your program stand behind it; --help lists ours", Shown(argument),
                      near ? "; did you mean " + *near + "?" : "")};
}

base::Error Ambiguous(const std::string& argument, const std::vector<const FlagRow*>& candidates) {
  std::vector<std::string> names;
  for (const FlagRow* row : candidates) names.push_back(row->LongName());
  return {fmt::format("'{}' can be short for {}: write it out", Shown(argument), base::Join(names, ", "))};
}

// Processes the flags before the program.
class CommandLine {
 public:
  explicit CommandLine(const std::vector<std::string>& arguments) : arguments_(arguments) {}

  base::Result<LaunchArguments> Take() {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_];
      if (argument == "--") {
        ++next_;
        break;
      }
      const Token token = Read(argument);
      if (token.kind == Token::Kind::kText) break;
      if (token.kind == Token::Kind::kUnknownFlag) return UnknownFlag(argument);
      if (token.kind == Token::Kind::kAmbiguous) return Ambiguous(argument, token.candidates);
      ++next_;
      const auto taken = TakeFlag(argument, token);
      if (!taken) return taken.error();
      if (read_.help) return read_;
    }
    read_.program.assign(arguments_.begin() + static_cast<std::ptrdiff_t>(next_), arguments_.end());
    return read_;
  }

 private:
  base::Result<void> TakeFlag(const std::string& argument, Token token) {
    // More than one iteration only for combined short switches: -mr3 is -m -r 3.
    for (;;) {
      if (!token.row->is_switch()) return TakeValue(token);
      Remember(*token.row, "");
      if (token.row->id == FlagId::kHelp) read_.help = true;
      if (!token.value) return {};
      const bool is_short = argument[1] != '-' && argument.find('=') == std::string::npos;
      const FlagRow* next = is_short && !token.value->empty() ? FindExact("-" + token.value->substr(0, 1)) : nullptr;
      if (next == nullptr) {
        // -master_port: a long flag with one dash, not -m with something attached.
        if (is_short && !FindByStart("-" + argument.substr(0, argument.find('='))).empty())
          return UnknownFlag(argument);
        return base::Error{
            fmt::format("{} takes no value, and '{}' gives it one", token.row->LongName(), Shown(argument))};
      }
      const std::string rest = token.value->substr(1);
      token.row = next;
      token.value = rest.empty() ? std::nullopt : std::optional(rest);
    }
  }

  base::Result<void> TakeValue(const Token& token) {
    if (token.value) {
      Remember(*token.row, *token.value);
      return {};
    }
    const bool is_there =
        next_ < arguments_.size() && arguments_[next_] != "--" && Read(arguments_[next_]).kind == Token::Kind::kText;
    if (!is_there) {
      return base::Error{
          fmt::format("{} needs a value: {} {}", token.row->LongName(), token.row->LongName(), token.row->value)};
    }
    Remember(*token.row, arguments_[next_++]);
    return {};
  }

  void Remember(const FlagRow& row, std::string value) {
    read_.given[row.id] = GivenFlag{std::move(value), row.LongName(), false};
  }

  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;
  LaunchArguments read_;
};

// Flags for which torchrun treats an empty string as not given.
bool EmptyMeansNotGiven(FlagId id) {
  switch (id) {
    case FlagId::kRdzvEndpoint:
    case FlagId::kRdzvConf:
    case FlagId::kLogDir:
    case FlagId::kLocalRanksFilter:
    case FlagId::kDuplicateStdoutFilters:
    case FlagId::kDuplicateStderrFilters:
      return true;
    default:
      return false;
  }
}

base::Result<void> AddDefaultsFromEnvironment(const base::Environment& environment, LaunchArguments& read) {
  for (const FlagRow& row : LaunchFlagTable()) {
    if (!row.has_pet || read.Has(row.id)) continue;
    const std::string variable = row.PetVariable();
    const auto value = environment.Get(variable);
    if (!value) continue;
    GivenFlag given{*value, variable, true};
    if (row.is_switch()) {
      const auto number = base::ParseInteger<int>(base::Trim(*value));
      if (!number) return given.Refuse("it is a switch: 1 turns it on, 0 leaves it off");
      if (*number == 0) continue;
      given.value.clear();
    }
    read.given.emplace(row.id, std::move(given));
  }
  return {};
}

}  // namespace

base::Error GivenFlag::Refuse(std::string_view why) const {
  return {fmt::format("{}{}'{}': {}", name, from_environment ? "=" : " ", Shown(value), why)};
}

const GivenFlag* LaunchArguments::Find(FlagId id) const {
  const auto found = given.find(id);
  return found == given.end() ? nullptr : &found->second;
}

base::Result<LaunchArguments> ReadLaunchArguments(const std::vector<std::string>& arguments,
                                                  const base::Environment& environment) {
  auto read = CommandLine(arguments).Take();
  if (!read || read->help) return read;
  const auto defaults = AddDefaultsFromEnvironment(environment, *read);
  if (!defaults) return defaults.error();
  for (auto flag = read->given.begin(); flag != read->given.end();) {
    const bool drop = flag->second.value.empty() && EmptyMeansNotGiven(flag->first);
    flag = drop ? read->given.erase(flag) : std::next(flag);
  }
  return read;
}

}  // namespace fulldeck::job
