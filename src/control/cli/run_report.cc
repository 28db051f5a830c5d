#include "cli/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "cli/card_cells.h"
#include "device/host.h"

namespace fulldeck::cli {
namespace {

using job::RankStatus;
using job::RunRecord;
using job::RunStatus;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

// "8", or "4-7 of 8" on one of several nodes.
std::string RanksOfRun(const RunStatus& run) {
  const RunRecord& record = run.entry.record;
  const int here = static_cast<int>(run.ranks.size());
  if (record.group_world_size == 1 || here == 0) return std::to_string(record.world_size);
  return fmt::format("{}-{} of {}", record.first_rank, record.first_rank + here - 1, record.world_size);
}

std::string StepText(std::optional<std::uint64_t> step, std::optional<std::uint64_t> total) {
  if (!step) return base::kAbsent;
  return total && *total > 0 ? fmt::format("{} / {}", *step, *total) : std::to_string(*step);
}

std::string StateText(const RunStatus& run) {
  const RunRecord& record = run.entry.record;
  if (record.attempt == 0 || !run.entry.alive) return run.state;
  return fmt::format("{}, restart {} of {}", run.state, record.attempt, record.max_restarts);
}

base::Color StateColor(const RunStatus& run) {
  if (!run.entry.alive) return base::Color::kRed;
  return run.state == "running" ? base::Color::kGreen : base::Color::kYellow;
}

std::string LossText(const RankStatus& rank) {
  if (!rank.loop || !rank.loop->loss) return base::kAbsent;
  return fmt::format("{:.4g}", *rank.loop->loss);
}

// The current inventory entry of a rank's card. The name is not sufficient: it may be a card of a different,
// simulated or real, server.
const device::Card* FindCard(const device::Inventory* inventory, const std::optional<job::RegisteredCard>& wanted) {
  if (inventory == nullptr || !wanted) return nullptr;
  for (const device::Card* card : inventory->Cards()) {
    if (device::NameOf(*card) != wanted->name) continue;
    const auto& serial = card->serial ? card->serial : card->uuid;
    if (wanted->serial.empty() || !serial || *serial == wanted->serial) return card;
  }
  return nullptr;
}

base::Cell RankState(const RankStatus& rank) {
  if (rank.state == "running") return {rank.state, base::Color::kGreen};
  return {rank.state, rank.alive || rank.state == "starting" ? base::Color::kYellow : base::Color::kRed};
}

std::vector<base::Cell> RankRow(const RankStatus& rank, const device::Inventory* inventory) {
  const device::Card* card = FindCard(inventory, rank.card);
  const auto of_card = [&](const auto& text) -> std::string { return card != nullptr ? text(*card) : base::kAbsent; };
  const bool has_steps = rank.loop && rank.loop->step_at_ns != 0;
  const bool has_phase = rank.loop && rank.loop->phase != wire::Phase::kNotReported;
  return {{std::to_string(rank.rank)},
          {rank.pid ? std::to_string(*rank.pid) : base::kAbsent},
          RankState(rank),
          {rank.card ? base::Printable(rank.card->name) : base::kAbsent},
          card != nullptr ? UtilizationCell(card->telemetry) : base::Cell{base::kAbsent},
          {of_card([](const device::Card& each) { return MemoryText(each); })},
          {of_card([](const device::Card& each) { return PowerText(each.telemetry); })},
          {of_card([](const device::Card& each) { return TemperatureText(each.telemetry); })},
          {has_phase ? wire::PhaseName(rank.loop->phase) : base::kAbsent},
          {has_steps ? StepText(rank.loop->step, rank.loop->total_steps) : base::kAbsent},
          {LossText(rank)},
          {rank.samples_per_second ? fmt::format("{:.1f}", *rank.samples_per_second) : base::kAbsent},
          {rank.cpu_percent ? fmt::format("{:.0f} %", *rank.cpu_percent) : base::kAbsent},
          {rank.resident_bytes ? base::FormatByteSize(*rank.resident_bytes) : base::kAbsent}};
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// JSON has no NaN.
Json NumberOrNull(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json CardJson(const RankStatus& rank, const device::Inventory* inventory) {
  if (!rank.card) return nullptr;
  Json object = {{"name", rank.card->name}, {"serial", rank.card->serial}};
  if (inventory == nullptr) return object;
  const device::Card* card = FindCard(inventory, rank.card);
  const device::Telemetry now = card != nullptr ? card->telemetry : device::Telemetry();
  object["utilisation_percent"] = OrNull(now.utilization_percent);
  object["memory_used_bytes"] = OrNull(now.memory_used_bytes);
  object["memory_total_bytes"] = card != nullptr ? OrNull(card->memory_total_bytes) : Json(nullptr);
  object["power_watts"] = OrNull(now.power_watts);
  object["temperature_celsius"] = OrNull(now.temperature_celsius);
  return object;
}

Json RankJson(const RankStatus& rank, const device::Inventory* inventory) {
  const bool has_steps = rank.loop && rank.loop->step_at_ns != 0;
  return {{"rank", rank.rank},
          {"local_rank", rank.local_rank},
          {"pid", OrNull(rank.pid)},
          {"state", rank.state},
          {"alive", rank.alive},
          {"card", CardJson(rank, inventory)},
          {"phase", rank.loop && rank.loop->phase != wire::Phase::kNotReported ? Json(wire::PhaseName(rank.loop->phase))
                                                                               : Json(nullptr)},
          {"step", has_steps ? Json(rank.loop->step) : Json(nullptr)},
          {"loss", rank.loop ? NumberOrNull(rank.loop->loss) : Json(nullptr)},
          {"samples_per_second", NumberOrNull(rank.samples_per_second)},
          {"processor_percent", NumberOrNull(rank.cpu_percent)},
          {"resident_bytes", OrNull(rank.resident_bytes)}};
}

Json RunJson(const RunStatus& run, const device::Inventory* inventory) {
  const RunRecord& record = run.entry.record;
  Json object = {{"run_id", record.run_id},
                 {"alive", run.entry.alive},
                 {"state", run.state},
                 {"user", record.user},
                 {"host", record.host},
                 {"directory", record.directory},
                 {"working_directory", record.working_directory},
                 {"command", record.command},
                 {"front_pid", record.front.pid},
                 {"supervisor_pid", record.supervisor.pid},
                 {"started_unix_seconds", record.started_unix_seconds},
                 {"attempt", record.attempt},
                 {"max_restarts", record.max_restarts},
                 {"first_rank", record.first_rank},
                 {"world_size", record.world_size},
                 {"group_rank", record.group_rank},
                 {"group_world_size", record.group_world_size},
                 {"step", OrNull(run.step)},
                 {"total_steps", OrNull(run.total_steps)},
                 {"board_problem", OrNull(run.board_problem)},
                 {"ranks", Json::array()}};
  for (const RankStatus& rank : run.ranks) object["ranks"].push_back(RankJson(rank, inventory));
  return object;
}

}  // namespace

std::int64_t UnixSecondsNow() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

std::string SinceText(std::int64_t from_unix_seconds, std::int64_t to_unix_seconds) {
  const std::int64_t seconds = std::max<std::int64_t>(0, to_unix_seconds - from_unix_seconds);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds % 86400 / 3600);
}

std::string CardsText(const std::vector<std::optional<job::RegisteredCard>>& cards) {
  std::map<std::string, std::vector<int>> indices_of_kind;
  for (const auto& card : cards) {
    if (!card) continue;
    const std::size_t space = card->name.rfind(' ');
    const auto index = space == std::string::npos
                           ? std::nullopt
                           : base::ParseInteger<int>(std::string_view(card->name).substr(space + 1));
    // A card whose name does not have the usual form is still shown.
    std::vector<int>& indices = indices_of_kind[base::Printable(index ? card->name.substr(0, space) : card->name)];
    if (index && std::find(indices.begin(), indices.end(), *index) == indices.end()) indices.push_back(*index);
  }
  std::vector<std::string> parts;
  for (auto& [kind, indices] : indices_of_kind) {
    std::sort(indices.begin(), indices.end());
    parts.push_back(indices.empty() ? kind : kind + " " + device::FormatCpuList(indices));
  }
  return parts.empty() ? "processors" : base::Join(parts, "; ");
}

std::string RunsText(const std::vector<RunStatus>& runs, bool colors) {
  if (runs.empty()) return "No run of yours is on this machine.\n";
  base::TextTable table;
  table.AddColumn("RUN", base::Align::kLeft);
  table.AddColumn("STATE", base::Align::kLeft);
  table.AddColumn("RANKS", base::Align::kRight);
  table.AddColumn("CARDS", base::Align::kLeft);
  table.AddColumn("STEP", base::Align::kRight);
  table.AddColumn("SINCE", base::Align::kRight);
  table.AddColumn("DIRECTORY", base::Align::kLeft);
  std::string notes;
  for (const RunStatus& run : runs) {
    const RunRecord& record = run.entry.record;
    table.AddRow({{record.run_id},
                  {StateText(run), StateColor(run)},
                  {RanksOfRun(run)},
                  {CardsText(record.cards)},
                  {StepText(run.step, run.total_steps)},
                  {SinceText(record.started_unix_seconds, UnixSecondsNow())},
                  {base::Printable(record.directory)}});
    if (!run.entry.alive) {
      notes += fmt::format("note: the launcher of {} is gone. To end what it left behind: fulldeck stop {}\n",
                           record.run_id, record.run_id);
    }
    if (run.board_problem) notes += fmt::format("note: {}: {}\n", record.run_id, base::Printable(*run.board_problem));
  }
  return table.Render(colors) + (notes.empty() ? "" : "\n" + notes);
}

std::string RanksText(const RunStatus& run, const device::Inventory* inventory, bool colors) {
  const RunRecord& record = run.entry.record;
  std::string text =
      fmt::format("run {}: {}, attempt {} of {}, since {}, ", record.run_id, run.state, record.attempt + 1,
                  record.max_restarts + 1, SinceText(record.started_unix_seconds, UnixSecondsNow()));
  text +=
      record.group_world_size > 1
          ? fmt::format("host {} of {}, ranks {}\n", record.group_rank + 1, record.group_world_size, RanksOfRun(run))
          : fmt::format("{} rank{}\n", record.world_size, record.world_size == 1 ? "" : "s");
  base::TextTable table;
  table.AddColumn("RANK", base::Align::kRight);
  table.AddColumn("PID", base::Align::kRight);
  table.AddColumn("STATE", base::Align::kLeft);
  table.AddColumn("CARD", base::Align::kLeft);
  table.AddColumn("UTIL", base::Align::kRight);
  table.AddColumn("MEMORY", base::Align::kRight);
  table.AddColumn("POWER", base::Align::kRight);
  table.AddColumn("TEMP", base::Align::kRight);
  table.AddColumn("PHASE", base::Align::kLeft);
  table.AddColumn("STEP", base::Align::kRight);
  table.AddColumn("LOSS", base::Align::kRight);
  table.AddColumn("SAMPLES/S", base::Align::kRight);
  table.AddColumn("CPU", base::Align::kRight);
  table.AddColumn("RSS", base::Align::kRight);
  for (const RankStatus& rank : run.ranks) table.AddRow(RankRow(rank, inventory));
  text += table.Render(colors);
  if (run.board_problem) text += fmt::format("note: {}\n", base::Printable(*run.board_problem));
  return text;
}

std::string RunsJson(const std::vector<RunStatus>& runs, const device::Inventory* inventory) {
  Json object = {{"version", kJsonVersion}, {"runs", Json::array()}};
  for (const RunStatus& run : runs) object["runs"].push_back(RunJson(run, inventory));
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void WarnOf(const std::vector<std::string>& warnings) {
  for (const std::string& complaint : warnings) base::Log(base::Severity::kWarning, complaint);
}

}  // namespace fulldeck::cli
