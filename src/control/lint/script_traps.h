// Known traps in training scripts and their configs: what is written there that fails on this machine, or trains and is
// wrong without a word. A trap is one rule of data/lint/rules.toml with its fix, and one function that finds its places
// in a script; docs/doctor-script.md shows the rules.
//
// Reads, never runs. A trap that is not seen may still be there; one that is told must be there: scripts that are sound
// must give nothing.
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

// What traps ask about the machine.
struct ScriptMachine {
  bool has_cuda = false;  // cards that torch calls cuda
  int cards = 0;
  int visible = 0;          // of them
  int ranks = 1;            // that a run here would have
  std::string device_type;  // of the cards for torch: "gcu"; "cpu" where there are none, empty where nobody knows
};
ScriptMachine MachineOf(const device::Inventory& inventory, int ranks);

enum class Severity {
  kWarn,  // works, and will hurt
  kFail,  // fails, or trains wrongly without an error
};

struct Trap {
  std::string id;   // "no-sampler": short, kept for ever, the name in --json
  std::string row;  // in the catalogue of failures
  Severity severity = Severity::kWarn;
  bool without_cuda = false;  // only where there is no card that torch calls cuda
  base::BilingualText what;   // what is wrong with it
  base::BilingualText fix;
};
// In the order of the file. Any thread.
std::span<const Trap> Traps();
// CHECKs that there is one.
const Trap& FindTrap(std::string_view id);

struct TrapHit {
  const Trap* trap = nullptr;
  std::string file;            // as it was named
  int line = 0;                // 0: the file as a whole
  std::string text;            // the line itself, printable and capped
  base::BilingualText detail;  // numbers and names of this place; may be empty
};

// One file, with what its traps ask.
class ScriptReading {
 public:
  ScriptReading(const Script& script, std::string file, std::string folder, const ScriptMachine& machine);

  const Script& script;
  const std::string file;
  const std::string folder;  // in which relative paths of a config lie
  const ScriptMachine& machine;

  bool distributed = false;   // makes a process group, or wraps a model
  bool in_framework = false;  // MMEngine, Accelerate, Lightning, DeepSpeed …: what goes on in the loop is its affair
  std::vector<std::string_view> wrapped;  // names that a DistributedDataParallel was given to

  // By a condition that asks for CUDA, or for another kind of device.
  bool OnlyWithCuda(int statement) const;
  // By a condition that asks who this rank is; `depth` callers up.
  bool OnlyOnOneRank(int statement, int depth = 3) const;
  // By a condition that names this variable.
  bool DependsOn(int statement, std::string_view variable) const;
  // What the plain name `name` was given in this file.
  std::vector<const Assignment*> ValuesOf(std::string_view name) const;

  void Hit(std::string_view trap, int line, base::BilingualText detail = {});
  std::vector<TrapHit> hits;

 private:
  std::set<std::pair<const Trap*, int>> seen_;  // with the line
};

// Each finds the places of the traps that it is named after.
void FindDeviceTraps(ScriptReading& reading);  // nccl, torch.cuda, device_ids, vendors' guesses, maps of devices
void FindRankTraps(ScriptReading& reading);    // ranks, ports, variables, numbers of processes
void FindLoopTraps(ScriptReading& reading);    // samplers, seeds, saves, wrappers
void FindConfigTraps(ScriptReading& reading);  // MMEngine's configs in Python

// All of them, by line.
std::vector<TrapHit> TrapsIn(const Script& script, const std::string& file, const std::string& folder,
                             const ScriptMachine& machine);

}  // namespace fulldeck::lint
