// Known traps in training scripts and their configs: code that fails on this machine, or that trains but is silently
// wrong. A trap is one rule of data/lint/rules.toml with its fix, and one function that finds its occurrences in a
// script; docs/doctor-script.md has the table.
//
// Reads scripts, never runs them. False negatives are acceptable; false positives are not: a correct script must give
// no hits.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bilingual_text.h"
#include "device/inventory.h"
#include "lint/script_outline.h"

namespace fulldeck::lint {

// Facts about the machine that traps depend on.
struct ScriptMachine {
  bool has_cuda = false;  // cards that torch addresses as cuda
  int cards = 0;
  int visible = 0;          // visible ones among `cards`
  int ranks = 1;            // number of ranks of a run here
  std::string device_type;  // torch's device type of the cards: "gcu"; "cpu" without cards, empty if unknown
};
ScriptMachine MachineOf(const device::Inventory& inventory, int ranks);

enum class Severity {
  kWarn,  // works, with a disadvantage
  kFail,  // fails, or trains wrongly without an error
};

struct Trap {
  std::string id;   // "no-sampler": short, stable, the name in --json
  std::string row;  // failure code in the catalogue
  Severity severity = Severity::kWarn;
  bool without_cuda = false;  // applies only if torch addresses no card as cuda
  base::BilingualText what;   // what is wrong with it
  base::BilingualText fix;
};
// In the order of the file. Any thread.
std::span<const Trap> Traps();
// CHECKs that it exists.
const Trap& FindTrap(std::string_view id);

struct TrapHit {
  const Trap* trap = nullptr;
  std::string file;            // as passed by the user
  int line = 0;                // 0: the whole file
  std::string text;            // the line, printable and capped
  base::BilingualText detail;  // numbers and names of this occurrence; may be empty
};

// One file, with the facts that its traps need.
class ScriptReading {
 public:
  ScriptReading(const Script& script, std::string file, std::string folder, const ScriptMachine& machine);

  const Script& script;
  const std::string file;
  const std::string folder;  // base of relative paths in a config
  const ScriptMachine& machine;

  bool distributed = false;               // creates a process group or wraps a model
  bool in_framework = false;              // MMEngine, Accelerate, Lightning, DeepSpeed …: the framework owns the loop
  std::vector<std::string_view> wrapped;  // names that were passed to a DistributedDataParallel

  // Whether a condition tests for CUDA or for another device type.
  bool OnlyWithCuda(int statement) const;
  // Whether a condition tests the rank; follows callers up to `depth` levels.
  bool OnlyOnOneRank(int statement, int depth = 3) const;
  // Whether a condition mentions this variable.
  bool DependsOn(int statement, std::string_view variable) const;
  // The values assigned to the plain name `name` in this file.
  std::vector<const Assignment*> ValuesOf(std::string_view name) const;

  void Hit(std::string_view trap, int line, base::BilingualText detail = {});
  std::vector<TrapHit> hits;

 private:
  std::set<std::pair<const Trap*, int>> seen_;  // with the line
};

// Each function finds the occurrences of one group of traps.
void FindDeviceTraps(ScriptReading& reading);  // nccl, torch.cuda, device_ids, vendors' guesses, device maps
void FindRankTraps(ScriptReading& reading);    // ranks, ports, variables, process counts
void FindLoopTraps(ScriptReading& reading);    // samplers, seeds, saves, wrappers
void FindConfigTraps(ScriptReading& reading);  // MMEngine's Python configs

// All hits, ordered by line.
std::vector<TrapHit> TrapsIn(const Script& script, const std::string& file, const std::string& folder,
                             const ScriptMachine& machine);

}  // namespace fulldeck::lint
