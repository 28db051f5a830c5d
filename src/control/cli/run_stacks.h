// Collects the stacks of a running run from outside: shared by `fulldeck stacks` and `fulldeck bundle`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diagnosis/hangs/stack_collection.h"
#include "job/runs/run_registry.h"

namespace fulldeck::cli {

// The ranks of this node that are alive, from the entry and the board. `rank`: only that one (its number in the whole
// run); fails if it is not on this node.
base::Result<std::vector<diagnosis::StackTarget>> StackTargets(const job::RunRegistry::Entry& entry,
                                                               std::optional<int> rank);

// Requests the stacks and waits for at most the limit of a collection. Blocks. nullopt if SIGINT or SIGTERM came
// first; processes that were continued for the collection are then stopped again.
std::optional<std::vector<diagnosis::RankStacks>> CollectStacks(std::vector<diagnosis::StackTarget> targets);

// {"version", "run_id", "saved", "ranks": [...]}; docs/stacks.md describes it.
std::string StacksJson(const std::string& run_id, const std::optional<std::string>& saved,
                       const std::vector<diagnosis::RankStacks>& ranks);

}  // namespace fulldeck::cli
