// A check of the doctor: one question about this machine that is answered by doing, with the evidence. The groups are
// one file or folder of checks each; `fulldeck doctor`, its JSON and the table in docs/doctor.md are made from the same
// list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/system_root.h"
#include "device/inventory.h"

namespace fulldeck::doctor {

enum class Group { kMachine, kCards, kStack, kContainer, kNetwork, kStorage };

enum class Verdict {
  kOk,          // it was done, and it is well
  kWarn,        // works, and will hurt
  kFail,        // a run on this machine fails, or is wrong without a word
  kCannotTell,  // it could not be done; says why. Never a kind of ok
};

// The same sentence in both languages.
struct Words {
  std::string english;
  std::string chinese;
};

struct Finding {
  Verdict verdict = Verdict::kCannotTell;
  Words evidence;                                            // what was done and what was seen
  Words cure;                                                // what to do first; empty for kOk
  std::string row;                                           // id in the catalogue of failures (H1), or empty
  std::vector<std::pair<std::string, std::string>> figures;  // for programs: {"bytes_free", "1048576"}
};

// What is looked at. A value: checks change nothing of it, and leave nothing behind on the machine.
struct Subject {
  base::SystemRoot root;
  base::Environment environment;
  device::Inventory inventory;
  int ranks = 1;                                      // that a run here would have
  int workers = -1;                                   // of each rank's data loader; -1: not said
  int hosts = 1;                                      // of --nnodes
  std::string work_dir;                               // where a run would write
  std::string python;                                 // the interpreter that a run would take; empty: none was found
  std::string program;                                // fulldeck itself, for probe processes
  bool deep = false;                                  // --deep: may take longer than a few seconds
  base::Duration patience{std::chrono::seconds(20)};  // for a card, an interpreter, a peer
};

struct Check {
  std::string_view id;  // "shm-size": short, kept for ever, the name in --json
  Group group = Group::kMachine;
  bool only_deep = false;
  Words does;    // what it does, for docs/doctor.md
  Words proves;  // what a green line then stands for
  // At least one finding; several where there are several things (cards, mounts).
  std::vector<Finding> (*run)(const Subject& subject) = nullptr;
};

// In the order in which they are shown.
std::vector<Check> MachineChecks();
std::vector<Check> CardChecks();
std::vector<Check> StackChecks();
std::vector<Check> ContainerChecks();
std::vector<Check> NetworkChecks();
std::vector<Check> StorageChecks();

// All of them, by group.
std::span<const Check> Checks();

}  // namespace fulldeck::doctor
