// Runs as text and as JSON: the output of ps and top.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/inventory.h"
#include "job/runs/run_status.h"

namespace fulldeck::cli {

// The time between the two: "12 s", "5 min", "3 h 12 min", "4 d 3 h".
std::string SinceText(std::int64_t from_unix_seconds, std::int64_t to_unix_seconds);
std::int64_t UnixSecondsNow();

// "gcu 0-7", "gcu 0,2; npu 1", "processors" for a run without cards.
std::string CardsText(const std::vector<std::optional<job::RegisteredCard>>& cards);

// One row per run, followed by the fix for runs whose launcher is gone.
std::string RunsText(const std::vector<job::RunStatus>& runs, bool colors);

// A line about the run and one row per rank, with the telemetry of its card. `inventory` may be null.
std::string RanksText(const job::RunStatus& run, const device::Inventory* inventory, bool colors);

// {"version", "runs": [...]}; docs/runs.md describes it. Absent values are null. If `inventory` is null, the ranks'
// cards are listed without telemetry.
std::string RunsJson(const std::vector<job::RunStatus>& runs, const device::Inventory* inventory);

// Warns about every run that this user cannot reach, and every file that is not an entry.
void WarnOf(const std::vector<std::string>& warnings);

}  // namespace fulldeck::cli
