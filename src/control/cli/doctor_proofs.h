// The two modes of `fulldeck doctor` that run without the other checks: are the collectives correct and fast on this
// machine (--collectives), and which known traps does a script contain (--script).
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
  int nproc = 0;  // 0: one per visible card
  std::string python;
  double timeout_seconds = 10;
  std::string fault;  // for tests
  bool json = false;
  bool chinese = false;
};

wire::ExitCode ProveCollectivesHere(const ProofOptions& options, const device::Inventory& inventory);
wire::ExitCode CheckScriptHere(const ProofOptions& options, const device::Inventory& inventory);

// Also for tests.
std::string CollectivesText(const doctor::ProofReport& report, bool chinese, bool colors);
std::string CollectivesJson(const doctor::ProofReport& report, bool chinese);
std::string ScriptText(const lint::ScriptReport& report, bool chinese, bool colors);
std::string ScriptJson(const lint::ScriptReport& report, const lint::ScriptMachine& machine, bool chinese);

}  // namespace fulldeck::cli
