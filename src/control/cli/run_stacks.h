// The stacks of a running run, taken from outside: what `fulldeck stacks` and `fulldeck bundle` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diagnosis/hangs/stack_collection.h"
#include "job/runs/run_registry.h"

namespace fulldeck::cli {

// The ranks of this host that live, as the entry and the board name them. `rank`: that one alone (counted over all
// hosts); an error when it is not here.
base::Result<std::vector<diagnosis::StackTarget>> StackTargets(const job::RunRegistry::Entry& entry,
                                                               std::optional<int> rank);

// Asks and waits, at most as long as a collection does. Blocks. Nothing when SIGINT or SIGTERM came first; what was
// continued is stopped again then.
std::optional<std::vector<diagnosis::RankStacks>> CollectStacks(std::vector<diagnosis::StackTarget> targets);

// {"version", "run_id", "saved", "ranks": [...]}; docs/stacks.md describes it.
std::string StacksJson(const std::string& run_id, const std::optional<std::string>& saved,
                       const std::vector<diagnosis::RankStacks>& ranks);

}  // namespace fulldeck::cli
