// A check of the doctor: one question about this machine that is answered by doing, with the evidence. The groups are
// one file or folder of checks each; `fulldeck doctor`, its JSON and the table in docs/doctor.md are made from the same
// list.
//
// A check runs in a process of its own (doctor/run_checks.h) and may take `limit`; then it is killed. Programs that it
// starts must end with it: base::SpawnOptions::parent_death_signal.
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
  kOk,          // it was done, and it is well
  kWarn,        // works, and will hurt
  kFail,        // a run on this machine fails, or is wrong without a word
  kCannotTell,  // it could not be done; says why. Never a kind of ok
};

struct Finding {
  Verdict verdict = Verdict::kCannotTell;
  base::BilingualText evidence;                              // what was done and what was seen
  base::BilingualText fix;                                   // what to do first; empty for kOk
  std::string row;                                           // id in the catalogue of failures (H1), or empty
  std::vector<std::pair<std::string, std::string>> figures;  // for programs: {"bytes_free", "1048576"}
};

// What is looked at. A value: checks change nothing of it, and leave nothing behind on the machine.
struct MachineUnderTest {
  base::SystemRoot root;
  base::Environment environment;
  device::Inventory inventory;
  int ranks = 1;                                     // that a run here would have
  int workers = -1;                                  // of each rank's data loader; -1: not said
  int nodes = 1;                                     // of --nnodes
  std::string work_dir;                              // where a run would write
  std::string python;                                // the interpreter that a run would take; empty: none was found
  std::string program;                               // fulldeck itself, for probe processes
  bool deep = false;                                 // --deep: may take longer than a few seconds
  base::Duration timeout{std::chrono::seconds(20)};  // for a card, an interpreter, a peer
  std::vector<std::string> peers;                    // other nodes: NAME or NAME:PORT
  const SystemCalls* kernel = &SystemCalls::OfThisMachine();  // what no file tells
};

// How long a check may take when --deep was not given: all of them together stay under five seconds.
inline constexpr base::Duration kShortLimit = std::chrono::milliseconds(4500);

struct Check {
  std::string_view id;  // "shm-size": short, kept for ever, the name in --json
  Group group = Group::kMachine;
  // Several findings where there are several things (cards, mounts). None where the question does not arise (no second
  // host was named): the check is then left out of the report.
  std::vector<Finding> (*run)(const MachineUnderTest& machine) = nullptr;
  bool only_deep = false;
  base::Duration limit = kShortLimit;                     // then it is cut, and cannot tell
  base::Duration deep_limit = std::chrono::seconds(120);  // the same with --deep
  // Checks of one family run in one process, one after the other, and may keep what they learnt for the next: they ask
  // the same interpreter, or put the same cards to work. Empty: alone.
  std::string_view family = {};
};

// What docs/doctor.md and `fulldeck doctor --list` say of a check: the files data/checks/GROUP.toml.
struct CheckTexts {
  std::string id;
  base::BilingualText does;    // what it does
  base::BilingualText proves;  // what a green line then stands for
  std::string rows;            // catalogue rows that it can name: "C8" or "A5, I9"; may be empty
};
// Of a check of Checks(); CHECKs that there are some. Any thread.
const CheckTexts& TextsOf(const Check& check);
// All of them, by the group that their file is named after.
const std::map<std::string, std::vector<CheckTexts>>& AllCheckTexts();

// In the order in which they are shown.
std::vector<Check> MachineChecks();
std::vector<Check> CardChecks();
std::vector<Check> StackChecks();
std::vector<Check> ContainerChecks();
std::vector<Check> NetworkChecks();
std::vector<Check> StorageChecks();

// All of them, by group.
std::span<const Check> Checks();

// "machine": the name in --only and --json.
std::string_view NameOf(Group group);
// "cannot tell"
std::string_view NameOf(Verdict verdict);
// Failing is worst, then warning, then not being able to tell.
Verdict Worst(std::span<const Finding> findings);

}  // namespace fulldeck::doctor
