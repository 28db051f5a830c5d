#include "cli/device_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/text_table.h"
#include "cli/card_cells.h"

namespace fulldeck::cli {
namespace {

using device::Card;
using device::Holder;
using device::Inventory;
using device::Telemetry;
using device::VendorReport;
using Json = nlohmann::ordered_json;

constexpr int kJsonVersion = 1;

std::string OrAbsent(const std::optional<std::string>& text) {
  return text.value_or(base::kAbsent);
}

base::Cell Torch(const Card& card) {
  if (!card.visible) return {"hidden", base::Color::kYellow};
  return {OrAbsent(card.torch_device)};
}

base::Cell State(const Card& card) {
  return {OrAbsent(card.telemetry.state), card.present ? base::Color::kNone : base::Color::kRed};
}

std::string Processes(const Telemetry& now) {
  if (!now.holders) return base::kAbsent;
  return std::to_string(now.holders->size());
}

base::TextTable CardTable(const std::vector<const Card*>& cards) {
  base::TextTable table;
  table.AddColumn("CARD", base::Align::kLeft);
  table.AddColumn("MODEL", base::Align::kLeft);
  table.AddColumn("SERIAL", base::Align::kLeft);
  table.AddColumn("PCI", base::Align::kLeft);
  table.AddColumn("NUMA", base::Align::kRight);
  table.AddColumn("UTIL", base::Align::kRight);
  table.AddColumn("MEMORY", base::Align::kRight);
  table.AddColumn("POWER", base::Align::kRight);
  table.AddColumn("TEMP", base::Align::kRight);
  table.AddColumn("STATE", base::Align::kLeft);
  table.AddColumn("TORCH", base::Align::kLeft);
  table.AddColumn("PROCESSES", base::Align::kRight);
  for (const Card* card : cards) {
    const Telemetry& now = card->telemetry;
    table.AddRow({{device::NameOf(*card)},
                  {OrAbsent(card->model) + (card->simulated ? " (simulated)" : "")},
                  {OrAbsent(card->serial ? card->serial : card->uuid)},
                  {OrAbsent(card->pci_address)},
                  {card->numa_node ? std::to_string(*card->numa_node) : base::kAbsent},
                  UtilizationCell(now),
                  {MemoryText(*card)},
                  {PowerText(now)},
                  {TemperatureText(now)},
                  State(*card),
                  Torch(*card),
                  {Processes(now)}});
  }
  return table;
}

std::string HolderLine(const Card& card, const Holder& holder) {
  return fmt::format("  {}: pid {}, {}{}: {}\n", device::NameOf(card), holder.pid,
                     holder.user.value_or("owner unknown"),
                     holder.memory_bytes ? ", " + base::FormatByteSize(*holder.memory_bytes) : "",
                     holder.command.value_or("command unknown"));
}

// A sentence that applies to several cards is printed once: "gcu 0, gcu 1: …".
std::string CardNotes(const std::vector<const Card*>& cards) {
  std::vector<std::pair<std::string, std::vector<std::string>>> cards_of_note;
  for (const Card* card : cards) {
    for (const std::string& note : card->notes) {
      auto known =
          std::find_if(cards_of_note.begin(), cards_of_note.end(), [&](const auto& n) { return n.first == note; });
      if (known == cards_of_note.end()) known = cards_of_note.insert(cards_of_note.end(), {note, {}});
      known->second.push_back(device::NameOf(*card));
    }
  }
  std::string text;
  for (const auto& [note, names] : cards_of_note) {
    const bool everyone = names.size() == cards.size() && names.size() > 1;
    text += fmt::format("note: {}: {}\n", everyone ? "all cards" : base::Join(names, ", "), note);
  }
  return text;
}

// "8 cards: 8 × Enflame S60, driver 1.2.0.301; 6 of 8 visible (TOPS_VISIBLE_DEVICES=0,1,2,3,4,5)"
std::string VendorSummary(const VendorReport& report) {
  std::map<std::string, int> models;
  for (const Card& card : report.cards) ++models[OrAbsent(card.model)];
  std::vector<std::string> parts;
  for (const auto& [model, count] : models) parts.push_back(fmt::format("{} × {}", count, model));
  std::string text = fmt::format("{}: {}", report.title, base::Join(parts, ", "));
  if (report.cards.front().driver) text += ", driver " + *report.cards.front().driver;
  if (report.visibility) {
    const auto visible =
        std::count_if(report.cards.begin(), report.cards.end(), [](const Card& c) { return c.visible; });
    text += fmt::format("; {} of {} visible ({})", visible, report.cards.size(), *report.visibility);
  }
  if (report.container_visibility) text += fmt::format("; container: {}", *report.container_visibility);
  return text + "\n";
}

std::string HostSummary(const Card& host) {
  return fmt::format("Host: {}, processors {}, memory {}, {}\n", OrAbsent(host.model), OrAbsent(host.local_cpus),
                     MemoryText(host), OrAbsent(host.telemetry.state));
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ToJson(const Card& card) {
  const Telemetry& now = card.telemetry;
  Json object = {
      {"vendor", card.vendor},
      {"kind", card.kind},
      {"index", card.index},
      {"simulated", card.simulated},
      {"present", card.present},
      {"model", OrNull(card.model)},
      {"serial", OrNull(card.serial)},
      {"uuid", OrNull(card.uuid)},
      {"pci_address", OrNull(card.pci_address)},
      {"numa_node", OrNull(card.numa_node)},
      {"local_cpus", OrNull(card.local_cpus)},
      {"link", OrNull(card.link)},
      {"memory_total_bytes", OrNull(card.memory_total_bytes)},
      {"driver", OrNull(card.driver)},
      {"firmware", OrNull(card.firmware)},
      {"visible", card.visible},
      {"torch_device", OrNull(card.torch_device)},
      {"torch_module", card.torch_module.empty() ? Json(nullptr) : Json(card.torch_module)},
      {"collective_backend", card.collective_backend},
      {"nodes", card.nodes},
      {"sources", card.sources},
      {"notes", card.notes},
      {"utilisation_percent", OrNull(now.utilization_percent)},
      {"memory_used_bytes", OrNull(now.memory_used_bytes)},
      {"power_watts", OrNull(now.power_watts)},
      {"power_limit_watts", OrNull(now.power_limit_watts)},
      {"temperature_celsius", OrNull(now.temperature_celsius)},
      {"state", OrNull(now.state)},
      {"processes", nullptr},
  };
  if (now.holders) {
    object["processes"] = Json::array();
    for (const Holder& holder : *now.holders) {
      object["processes"].push_back({{"pid", holder.pid},
                                     {"user", OrNull(holder.user)},
                                     {"command", OrNull(holder.command)},
                                     {"memory_bytes", OrNull(holder.memory_bytes)}});
    }
  }
  return object;
}

}  // namespace

std::string DevicesText(const Inventory& inventory, const ReportOptions& options) {
  const std::vector<const Card*> cards = inventory.Cards();
  std::string text;
  if (!cards.empty()) text += CardTable(cards).Render(options.colors) + "\n";
  for (const VendorReport& report : inventory.vendors) {
    if (!report.cards.empty()) text += VendorSummary(report);
  }
  if (inventory.simulated) text += "Simulated cards: the real ones of this machine were not looked at.\n";
  if (cards.empty()) text += "No accelerator was found; ranks can run on the host's processors.\n";
  text += HostSummary(inventory.host);

  std::string processes;
  for (const Card* card : cards) {
    if (!card->telemetry.holders) continue;
    for (const Holder& holder : *card->telemetry.holders) processes += HolderLine(*card, holder);
  }
  if (!processes.empty()) text += "\nProcesses on the cards:\n" + processes;

  std::string notes = CardNotes(cards);
  for (const VendorReport& report : inventory.vendors) {
    if (report.absence && !options.all_vendors && report.failures.empty()) continue;
    for (const std::string& note : report.notes) notes += fmt::format("note: {}: {}\n", report.title, note);
  }
  if (!notes.empty()) text += "\n" + notes;
  if (options.all_vendors) {
    text += "\n";
    for (const VendorReport& report : inventory.vendors) {
      if (report.absence) text += fmt::format("{}: not here, because {}\n", report.title, *report.absence);
    }
  }
  return text;
}

std::string DevicesJson(const Inventory& inventory) {
  Json object = {{"version", kJsonVersion},
                 {"simulated", inventory.simulated},
                 {"cards", Json::array()},
                 {"host", ToJson(inventory.host)},
                 {"vendors", Json::array()}};
  for (const Card* card : inventory.Cards()) object["cards"].push_back(ToJson(*card));
  for (const VendorReport& report : inventory.vendors) {
    object["vendors"].push_back({{"name", report.vendor},
                                 {"cards", report.cards.size()},
                                 {"absence", OrNull(report.absence)},
                                 {"failures", report.failures},
                                 {"notes", report.notes},
                                 {"visibility", OrNull(report.visibility)},
                                 {"bad_visibility", OrNull(report.bad_visibility)},
                                 {"container_visibility", OrNull(report.container_visibility)}});
  }
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fulldeck::cli
