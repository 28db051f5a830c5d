// A check of the doctor: one question about this machine that is answered by an experiment, with evidence. Each group
// has its own file or folder of checks; `fulldeck doctor`, its JSON and the table in docs/doctor.md are generated from
// the same list.
//
// A check runs in a process of its own (doctor/run_checks.h) and is killed after `limit`. Programs that it starts must
// end with it: base::SpawnOptions::parent_death_signal.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bilingual_text.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/files/system_root.h"
#include "device/inventory.h"
#include "doctor/machine/system_calls.h"

namespace fulldeck::doctor {

enum class Group { kMachine, kCards, kStack, kContainer, kNetwork, kStorage };

enum class Verdict {
  kOk,          // tested and passed
  kWarn,        // works, with a disadvantage
  kFail,        // a run on this machine fails, or gives silently wrong results
  kCannotTell,  // could not be tested, with the reason; never counts as ok
};

struct Finding {
  Verdict verdict = Verdict::kCannotTell;
  base::BilingualText evidence;                              // what was done and observed
  base::BilingualText fix;                                   // what to do first; empty for kOk
  std::string row;                                           // failure code in the catalogue (H1), or empty
  std::vector<std::pair<std::string, std::string>> figures;  // machine-readable: {"bytes_free", "1048576"}
};

// The machine that checks examine. A value: checks do not modify it, and clean up everything that they create on the
// machine.
struct MachineUnderTest {
  base::SystemRoot root;
  base::Environment environment;
  device::Inventory inventory;
  int ranks = 1;                                     // number of ranks of a run here
  int workers = -1;                                  // per data loader of a rank; -1: unknown
  int nodes = 1;                                     // of --nnodes
  std::string work_dir;                              // where a run would write
  std::string python;                                // the interpreter that a run would use; empty: none was found
  std::string program;                               // fulldeck itself, for probe processes
  bool deep = false;                                 // --deep: may take longer than a few seconds
  base::Duration timeout{std::chrono::seconds(20)};  // for a card, an interpreter, a peer
  std::vector<std::string> peers;                    // other nodes: NAME or NAME:PORT
  const SystemCalls* kernel = &SystemCalls::OfThisMachine();  // facts that no file provides
};

// The limit of a check without --deep: all checks together take less than five seconds.
inline constexpr base::Duration kShortLimit = std::chrono::milliseconds(4500);

struct Check {
  std::string_view id;  // "shm-size": short, stable, the name in --json
  Group group = Group::kMachine;
  // Returns several findings for several objects (cards, mounts), and none if it does not apply (no second node was
  // named): the report then skips the check.
  std::vector<Finding> (*run)(const MachineUnderTest& machine) = nullptr;
  bool only_deep = false;
  base::Duration limit = kShortLimit;                     // after that it is killed and reported as "cannot tell"
  base::Duration deep_limit = std::chrono::seconds(120);  // the same with --deep
  // Checks of one family run one after the other in one process and can share state: they query the same interpreter,
  // or use the same cards. Empty: a process of its own.
  std::string_view family = {};
};

// What docs/doctor.md and `fulldeck doctor --list` print for a check: the files data/checks/GROUP.toml.
struct CheckTexts {
  std::string id;
  base::BilingualText does;    // what it does
  base::BilingualText proves;  // what its success guarantees
  std::string rows;            // failure codes that it can report: "C8" or "A5, I9"; may be empty
};
// For a check of Checks(), which must have texts. Thread-safe.
const CheckTexts& TextsOf(const Check& check);
// All of them, by the group that their file is named after.
const std::map<std::string, std::vector<CheckTexts>>& AllCheckTexts();

// In display order.
std::vector<Check> MachineChecks();
std::vector<Check> CardChecks();
std::vector<Check> StackChecks();
std::vector<Check> ContainerChecks();
std::vector<Check> NetworkChecks();
std::vector<Check> StorageChecks();

// All checks, by group.
std::span<const Check> Checks();

// "machine": the name in --only and --json.
std::string_view NameOf(Group group);
// "cannot tell"
std::string_view NameOf(Verdict verdict);
// Failed is worst, then warning, then cannot tell.
Verdict Worst(std::span<const Finding> findings);

}  // namespace fulldeck::doctor
