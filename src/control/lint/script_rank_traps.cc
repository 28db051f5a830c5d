#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.h"
#include "device/vendor_traits.h"
#include "lint/script_traps.h"

namespace fulldeck::lint {
namespace {

int LineOf(const Script& script, Range range) {
  return script.tokens()[range.begin].line;
}

std::vector<std::string_view> VisibilityVariables() {
  std::vector<std::string_view> names;
  for (const device::VendorTraits& vendor : device::AllVendorTraits()) {
    for (const std::string_view name : {vendor.visibility_variable, vendor.second_visibility_variable}) {
      if (!name.empty()) names.push_back(name);
    }
  }
  return names;
}

// For a target `os.environ["NAME"]`: the name.
std::optional<std::string_view> VariableOf(const Script& script, Range target) {
  const auto& tokens = script.tokens();
  if (target.end < target.begin + 4) return std::nullopt;
  const bool subscript = tokens[target.end - 1].Is("]") && tokens[target.end - 3].Is("[") &&
                         tokens[target.end - 2].kind == TokenKind::kString;
  if (!subscript || !tokens[target.end - 4].Is("environ")) return std::nullopt;
  return tokens[target.end - 2].content;
}

// Whether the value of a variable is the same in every run: "29500", str(29500).
bool IsConstant(const Script& script, Range value) {
  if (script.Text(value)) return true;
  const auto& tokens = script.tokens();
  return value.end == value.begin + 4 && tokens[value.begin].Is("str") &&
         script.Number({value.begin + 2, value.begin + 3}).has_value();
}

std::optional<long> ConstantNumber(const ScriptReading& reading, Range value) {
  const Script& script = reading.script;
  if (const auto number = script.Number(value)) return number;
  if (const auto text = script.Text(value)) return base::ParseInteger<long>(*text);
  if (value.end != value.begin + 1 || !script.tokens()[value.begin].IsName()) return std::nullopt;
  const auto values = reading.ValuesOf(script.tokens()[value.begin].text);
  return values.size() == 1 ? script.Number(values.front()->value) : std::nullopt;
}

void FindModulo(ScriptReading& reading) {
  const Script& script = reading.script;
  const auto& tokens = script.tokens();
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
    if (!tokens[i].Is("%")) continue;
    // int(os.environ["RANK"]) % …, get_rank() % …, rank % …
    std::size_t begin = i - 1;
    if (tokens[begin].Is(")") || tokens[begin].Is("]")) {
      int depth = 0;
      for (;; --begin) {
        if (tokens[begin].Is(")") || tokens[begin].Is("]")) ++depth;
        if (tokens[begin].Is("(") || tokens[begin].Is("[")) --depth;
        if (depth <= 0 || begin == 0 || begin + 39 <= i) break;
      }
      if (begin > 0) --begin;
    } else if (!tokens[begin].IsName()) {
      continue;
    }
    if (!script.MentionsSubstring({begin, i}, "rank")) continue;
    std::size_t end = i + 1;
    while (end < tokens.size() && (tokens[end].IsName() || tokens[end].Is("."))) ++end;
    const bool counts = script.MentionsSubstring({i + 1, end}, "device_count");
    const auto values = end == i + 2 ? reading.ValuesOf(tokens[i + 1].text) : std::vector<const Assignment*>();
    const bool counted = std::any_of(values.begin(), values.end(), [&](const Assignment* value) {
      return script.MentionsSubstring(value->value, "device_count");
    });
    if (counts && end < tokens.size() && tokens[end].Is("(")) end += 2;
    // `rank % cards == 0` is a test and selects no card.
    const bool compared = end < tokens.size() && (tokens[end].Is("==") || tokens[end].Is("!="));
    if ((counts || counted) && !compared) reading.Hit("rank-modulo", tokens[i].line);
  }
}

void FindVariables(ScriptReading& reading) {
  const Script& script = reading.script;
  const std::vector<std::string_view> visibility = VisibilityVariables();
  const auto is_visibility = [&](std::string_view name) {
    return std::find(visibility.begin(), visibility.end(), name) != visibility.end();
  };
  for (const Assignment& assignment : script.assignments()) {
    const auto variable = VariableOf(script, assignment.target_tokens);
    if (!variable) continue;
    const int line = LineOf(script, assignment.target_tokens);
    const bool keeps =
        script.MentionsText(assignment.value, *variable) || reading.DependsOn(assignment.statement, *variable);
    if (keeps) continue;
    if (is_visibility(*variable)) {
      // Hiding all cards selects the CPU.
      const auto text = script.Text(assignment.value);
      if (!text || (!text->empty() && *text != "-1")) reading.Hit("visibility-changed", line);
    } else if (*variable == "MASTER_PORT" && IsConstant(script, assignment.value)) {
      reading.Hit("fixed-port", line);
    } else if (*variable == "LOCAL_RANK" && script.Mentions(assignment.value, [](std::string_view name) {
                 return name == "args" || name == "opt" || name == "opts" || name == "options" || name == "flags";
               })) {
      reading.Hit("local-rank-overwritten", line);
    } else if (*variable == "WORLD_SIZE") {
      const auto number = ConstantNumber(reading, assignment.value);
      if (number && *number > 1 && *number != reading.machine.ranks) {
        reading.Hit("fixed-processes", line,
                    {fmt::format("{} there, {} here", *number, reading.machine.ranks),
                     fmt::format("脚本为 {}，本机为 {}", *number, reading.machine.ranks)});
      }
    }
  }
  for (const Statement& statement : script.statements()) {
    if (statement.word != "del") continue;
    const auto variable = VariableOf(script, {statement.tokens.begin + 1, statement.tokens.end});
    if (variable && is_visibility(*variable)) reading.Hit("visibility-changed", statement.line);
  }
  for (const Call& call : script.calls()) {
    const bool takes_away = call.callee == "os.environ.pop" || call.callee == "os.unsetenv" ||
                            call.callee == "os.putenv" || call.callee == "environ.pop";
    const bool updates = call.callee == "os.environ.update" || call.callee == "environ.update";
    if (!takes_away && !updates) continue;
    for (const std::string_view name : visibility) {
      const bool named =
          script.MentionsText(call.arguments_range, name) || Script::Find(call, name, std::nullopt) != nullptr;
      if (named && !reading.DependsOn(call.statement, name)) reading.Hit("visibility-changed", call.line);
    }
  }
}

void FindLocalRankArgument(ScriptReading& reading) {
  const Script& script = reading.script;
  const Range all{0, script.tokens().size()};
  if (script.MentionsText(all, "LOCAL_RANK")) return;
  for (const Call& call : script.calls()) {
    if (call.method != "add_argument") continue;
    const bool local_rank = script.MentionsText(call.arguments_range, "--local_rank") ||
                            script.MentionsText(call.arguments_range, "--local-rank");
    if (!local_rank) continue;
    const Argument* otherwise = Script::Find(call, "default", std::nullopt);
    if (otherwise != nullptr && !script.Number(otherwise->value) && !script.Has(otherwise->value, "-")) continue;
    // Whether it is used, and not only parsed.
    const auto& tokens = script.tokens();
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      if (tokens[i].Is("local_rank") && tokens[i - 1].Is(".")) {
        reading.Hit("local-rank-default", call.line);
        break;
      }
    }
  }
}

void FindStarts(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    const Argument* number = nullptr;
    if (call.callee.ends_with("multiprocessing.spawn") || call.callee == "mp.spawn") {
      number = Script::Find(call, "nprocs", 2);
    } else if (call.method == "init_process_group") {
      number = Script::Find(call, "world_size", std::nullopt);
      const Argument* method = Script::Find(call, "init_method", 1);
      const auto address = method != nullptr ? script.Text(method->value) : std::nullopt;
      if (address && address->starts_with("tcp://") && address->rfind(':') > 5) {
        const auto port = base::ParseInteger<int>(std::string_view(*address).substr(address->rfind(':') + 1));
        if (port && *port != 0) reading.Hit("fixed-port", LineOf(script, method->value));
      }
    }
    if (number == nullptr) continue;
    const auto fixed = ConstantNumber(reading, number->value);
    if (fixed && *fixed > 1 && *fixed != reading.machine.ranks) {
      reading.Hit("fixed-processes", LineOf(script, number->value),
                  {fmt::format("{} there, {} here", *fixed, reading.machine.ranks),
                   fmt::format("脚本为 {}，本机为 {}", *fixed, reading.machine.ranks)});
    }
  }
}

// Whether the handler only prints a message and sets a few constants.
bool GoesOn(const Script& script, int handler) {
  constexpr std::array<std::string_view, 8> kPrinting = {"print", "warning", "warn",      "info",
                                                         "error", "debug",   "exception", "log"};
  constexpr std::array<std::string_view, 5> kConstants = {"0", "1", "False", "None", "True"};
  const auto& statements = script.statements();
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const Statement& statement = statements[i];
    if (!script.IsInside(static_cast<int>(i), handler)) continue;
    if (statement.word == "raise" || script.Has(statement.tokens, "exit") || script.Has(statement.tokens, "_exit"))
      return false;
    if (statement.word == "pass" || statement.is_header) continue;
    const bool prints = std::any_of(script.calls().begin(), script.calls().end(), [&](const Call& call) {
      return call.statement == static_cast<int>(i) &&
             std::find(kPrinting.begin(), kPrinting.end(), call.method) != kPrinting.end();
    });
    const Token& last = script.tokens()[statement.tokens.end - 1];
    const bool sets =
        std::any_of(kConstants.begin(), kConstants.end(), [&](std::string_view word) { return last.Is(word); });
    if (!prints && !sets && statement.word != "return") return false;
  }
  return true;
}

void FindFallbacks(ScriptReading& reading) {
  const Script& script = reading.script;
  const auto& statements = script.statements();
  for (std::size_t index = 0; index < statements.size(); ++index) {
    if (statements[index].word != "except" || !statements[index].is_header) continue;
    int attempt = statements[index].partner;
    while (attempt >= 0 && statements[static_cast<std::size_t>(attempt)].word != "try") {
      attempt = statements[static_cast<std::size_t>(attempt)].partner;
    }
    if (attempt < 0) continue;
    const auto calls_in = [&](int header) {
      return std::any_of(script.calls().begin(), script.calls().end(), [&](const Call& call) {
        return call.method == "init_process_group" && script.IsInside(call.statement, header);
      });
    };
    const int handler = static_cast<int>(index);
    if (!calls_in(attempt) || calls_in(handler)) continue;
    if (GoesOn(script, handler)) reading.Hit("falls-back-to-one", statements[index].line);
  }
}

void FindMissingConfigs(ScriptReading& reading) {
  const Script& script = reading.script;
  for (const Call& call : script.calls()) {
    const Argument* path = nullptr;
    if (call.callee.ends_with("Config.fromfile")) {
      path = Script::Find(call, "filename", 0);
    } else if (call.method == "add_argument" && !call.arguments.empty() &&
               script.MentionsSubstring(call.arguments.front().value, "config")) {
      path = Script::Find(call, "default", std::nullopt);
    } else if (call.method == "add_argument" && !call.arguments.empty()) {
      const auto option = script.Text(call.arguments.front().value);
      if (option && (option->ends_with("config") || option->ends_with("config-file") || option->ends_with("cfg"))) {
        path = Script::Find(call, "default", std::nullopt);
      }
    }
    const auto text = path != nullptr ? script.Text(path->value) : std::nullopt;
    if (!text || text->empty() || text->find("::") != std::string::npos) continue;
    const bool is_file = text->ends_with(".py") || text->ends_with(".yaml") || text->ends_with(".yml") ||
                         text->ends_with(".json") || text->ends_with(".toml");
    std::error_code ignored;
    if (!is_file || std::filesystem::exists(*text, ignored) ||
        std::filesystem::exists(std::filesystem::path(reading.folder) / *text, ignored)) {
      continue;
    }
    const std::string shown = base::Printable(*text);
    reading.Hit("config-missing", LineOf(script, path->value), {shown, shown});
  }
}

}  // namespace

void FindRankTraps(ScriptReading& reading) {
  FindModulo(reading);
  FindVariables(reading);
  FindLocalRankArgument(reading);
  FindStarts(reading);
  FindFallbacks(reading);
  FindMissingConfigs(reading);
}

}  // namespace fulldeck::lint
