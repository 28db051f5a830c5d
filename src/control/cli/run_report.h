// Runs as people and as programs read them: the tables and the JSON of ps and top.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/inventory.h"
#include "job/runs/run_status.h"

namespace fulldeck::cli {

// "12 s", "5 min", "3 h 12 min", "4 d 3 h" from then to now.
std::string SinceText(std::int64_t from_unix_seconds, std::int64_t to_unix_seconds);
std::int64_t UnixSecondsNow();

// "gcu 0-7", "gcu 0,2; npu 1", "processors" for a run without cards.
std::string CardsText(const std::vector<std::optional<job::RegisteredCard>>& cards);

// One row a run, and below it what to do about those that were left behind.
std::string RunsText(const std::vector<job::RunStatus>& runs, bool colors);

// A line about the run and one row a rank, with what its card does. `inventory` may be null.
std::string RanksText(const job::RunStatus& run, const device::Inventory* inventory, bool colors);

// {"version", "runs": [...]}; docs/runs.md describes it. Absent values are null. `inventory` may be null: the ranks'
// cards are named without what they do.
std::string RunsJson(const std::vector<job::RunStatus>& runs, const device::Inventory* inventory);

// For every run that is not this user's to reach, and every file that is no entry.
void WarnOf(const std::vector<std::string>& warnings);

}  // namespace fulldeck::cli
