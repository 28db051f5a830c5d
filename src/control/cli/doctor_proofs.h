// The two questions of `fulldeck doctor` that are asked by themselves: are the collectives right and fast here
// (--collectives), and which known traps stand in a script (--script).
#pragma once

#include <string>
#include <vector>

#include "device/inventory.h"
#include "doctor/collectives/collectives_proof.h"
#include "lint/script_check.h"
#include "wire/exit_codes.h"

namespace fulldeck::cli {

struct ProofOptions {
  std::vector<std::string> script;  // the script, then its configs
  std::string sizes = "4KiB,16MiB";
  std::string backend = "fulldeck";
  int nproc = 0;  // 0: one a card that can be seen
  std::string python;
  double timeout_seconds = 10;
  std::string fault;  // for tests
  bool json = false;
  bool chinese = false;
};

wire::ExitCode ProveCollectivesHere(const ProofOptions& options, const device::Inventory& inventory);
wire::ExitCode CheckScriptHere(const ProofOptions& options, const device::Inventory& inventory);

// For tests too.
std::string CollectivesText(const doctor::ProofReport& report, bool chinese, bool colors);
std::string CollectivesJson(const doctor::ProofReport& report, bool chinese);
std::string ScriptText(const lint::ScriptReport& report, bool chinese, bool colors);
std::string ScriptJson(const lint::ScriptReport& report, const lint::ScriptMachine& machine, bool chinese);

}  // namespace fulldeck::cli
