#include "lint/script_traps.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/text.h"

namespace fulldeck::lint {
namespace {

constexpr std::size_t kLongestLineShown = 160;

constexpr std::array<std::string_view, 8> kFrameworks = {"accelerate", "mmengine",          "mmcv",       "lightning",
                                                         "deepspeed",  "pytorch_lightning", "colossalai", "fulldeck"};

bool NamesARank(std::string_view name) {
  constexpr std::array<std::string_view, 12> kParts = {"rank",      "main_proc",     "is_main",     "master",
                                                       "primary",   "leader",        "is_chief",    "gpu",
                                                       "zero_only", "is_local_main", "global_zero", "process_index"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

}  // namespace

ScriptMachine MachineOf(const device::Inventory& inventory, int ranks) {
  ScriptMachine machine;
  machine.ranks = ranks;
  machine.device_type = "cpu";
  for (const device::Card* card : inventory.Cards()) {
    if (!card->present) continue;
    ++machine.cards;
    if (card->visible) ++machine.visible;
    const std::string type = card->torch_type.value_or("");
    if (machine.cards == 1) machine.device_type = type;
    if (type == "cuda") machine.has_cuda = true;
  }
  return machine;
}

const Trap& FindTrap(std::string_view id) {
  for (const Trap& trap : Traps()) {
    if (trap.id == id) return trap;
  }
  FULLDECK_CHECK(false);
  return Traps().front();
}

ScriptReading::ScriptReading(const Script& the_script, std::string the_file, std::string the_folder,
                             const ScriptMachine& the_machine)
    : script(the_script), file(std::move(the_file)), folder(std::move(the_folder)), machine(the_machine) {
  in_framework =
      std::any_of(kFrameworks.begin(), kFrameworks.end(), [&](std::string_view name) { return script.Imports(name); });
  for (const Call& call : script.calls()) {
    if (call.method == "init_process_group" || call.method == "DistributedDataParallel" ||
        call.method == "FullyShardedDataParallel" || call.method == "fully_shard") {
      distributed = true;
    }
    if (call.method == "Trainer" && script.Imports("transformers")) in_framework = true;
    if (call.method != "DistributedDataParallel") continue;
    for (const Assignment& assignment : script.assignments()) {
      if (assignment.statement == call.statement && !assignment.target.empty()) wrapped.push_back(assignment.target);
    }
  }
}

bool ScriptReading::OnlyWithCuda(int statement) const {
  if (statement < 0) return false;
  const auto matches = [](std::string_view name) {
    return name == "is_available" || name.find("cuda") != std::string_view::npos ||
           name.find("gpu") != std::string_view::npos || name.find("cpu") != std::string_view::npos ||
           name.find("nvidia") != std::string_view::npos || name.find("device") != std::string_view::npos ||
           name.find("backend") != std::string_view::npos || name.find("nccl") != std::string_view::npos;
  };
  const Range own = script.statements()[static_cast<std::size_t>(statement)].tokens;
  for (const std::string_view word : {"is_available", "if", "and", "or"}) {
    if (script.Has(own, word)) return true;
  }
  for (const Range& condition : script.ConditionsOf(statement)) {
    // `with torch.cuda.stream(…):` is not a condition.
    if (script.tokens()[condition.begin].Is("with") || script.tokens()[condition.begin].Is("for")) continue;
    if (script.Mentions(condition, matches)) return true;
  }
  return false;
}

bool ScriptReading::OnlyOnOneRank(int statement, int depth) const {
  if (statement < 0) return false;
  if (script.Mentions(script.statements()[static_cast<std::size_t>(statement)].tokens, NamesARank)) return true;
  for (const Range& condition : script.ConditionsOf(statement)) {
    if (script.Mentions(condition, NamesARank)) return true;
  }
  const int function = script.FunctionOf(statement);
  if (function < 0 || depth == 0) return false;
  for (const Range& decorator : script.DecoratorsOf(function)) {
    if (script.Mentions(decorator, NamesARank)) return true;
  }
  // A function whose callers all test the rank. A function without callers in this file belongs to other code.
  const std::string_view name = script.NameOfFunction(function);
  if (name.empty() || NamesARank(name)) return true;
  bool called = false;
  for (const Call& call : script.calls()) {
    if (call.method != name || script.IsInside(call.statement, function)) continue;
    called = true;
    if (!OnlyOnOneRank(call.statement, depth - 1)) return false;
  }
  if (called) return true;
  // Called by name: mp.spawn(main, …).
  for (const Call& call : script.calls()) {
    for (const Argument& argument : call.arguments) {
      if (argument.value.end == argument.value.begin + 1 && script.tokens()[argument.value.begin].Is(name))
        return false;
    }
  }
  return true;
}

bool ScriptReading::DependsOn(int statement, std::string_view variable) const {
  for (const Range& condition : script.ConditionsOf(statement)) {
    if (script.MentionsText(condition, variable)) return true;
  }
  return false;
}

std::vector<const Assignment*> ScriptReading::ValuesOf(std::string_view name) const {
  std::vector<const Assignment*> values;
  for (const Assignment& assignment : script.assignments()) {
    if (assignment.target == name) values.push_back(&assignment);
  }
  return values;
}

void ScriptReading::Hit(std::string_view id, int line, base::BilingualText detail) {
  const Trap& trap = FindTrap(id);
  if (trap.without_cuda && machine.has_cuda) return;
  if (!seen_.emplace(&trap, line).second) return;
  hits.push_back(
      {&trap, file, line, base::Printable(script.Line(line).substr(0, kLongestLineShown)), std::move(detail)});
}

std::vector<TrapHit> TrapsIn(const Script& script, const std::string& file, const std::string& folder,
                             const ScriptMachine& machine) {
  ScriptReading reading(script, file, folder, machine);
  FindDeviceTraps(reading);
  FindRankTraps(reading);
  FindLoopTraps(reading);
  FindConfigTraps(reading);
  std::stable_sort(reading.hits.begin(), reading.hits.end(),
                   [](const TrapHit& one, const TrapHit& other) { return one.line < other.line; });
  return std::move(reading.hits);
}

}  // namespace fulldeck::lint
