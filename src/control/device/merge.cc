#include "device/merge.h"

#include <algorithm>

#include "base/text.h"

namespace fulldeck::device {
namespace {

template <typename T>
void FillAbsent(std::optional<T>& target, const std::optional<T>& value) {
  if (!target) target = value;
}

Card MakeCard(const VendorTraits& traits, int index) {
  Card card;
  card.vendor = traits.name;
  card.kind = traits.kind;
  card.index = index;
  card.torch_type = traits.kind;
  card.torch_module = traits.torch_module;
  card.collective_backend = traits.collective_backend;
  return card;
}

Card* FindCard(std::vector<Card>& cards, const CardReading& reading) {
  if (reading.pci_address) {
    const auto same = [&](const Card& card) { return card.pci_address == reading.pci_address; };
    const auto card = std::find_if(cards.begin(), cards.end(), same);
    if (card != cards.end()) return &*card;
  }
  if (reading.index) {
    const auto same = [&](const Card& card) {
      // Two different addresses are two cards, whatever their numbers.
      return card.index == *reading.index && (!card.pci_address || !reading.pci_address);
    };
    const auto card = std::find_if(cards.begin(), cards.end(), same);
    if (card != cards.end()) return &*card;
  }
  return nullptr;
}

int FreeIndex(const std::vector<Card>& cards) {
  int index = 0;
  for (const Card& card : cards) index = std::max(index, card.index + 1);
  return index;
}

void FillCard(Card& card, const CardReading& reading, const SourceReading& source) {
  FillAbsent(card.model, reading.model);
  FillAbsent(card.serial, reading.serial);
  FillAbsent(card.uuid, reading.uuid);
  FillAbsent(card.pci_address, reading.pci_address);
  FillAbsent(card.firmware, reading.firmware);
  FillAbsent(card.driver, source.driver_version);
  FillAbsent(card.memory_total_bytes, reading.memory_total_bytes);
  Telemetry& now = card.telemetry;
  FillAbsent(now.memory_used_bytes, reading.memory_used_bytes);
  if (!now.memory_used_bytes && reading.memory_used_percent && card.memory_total_bytes) {
    const double used = static_cast<double>(*card.memory_total_bytes) * *reading.memory_used_percent / 100;
    now.memory_used_bytes = static_cast<std::uint64_t>(used);
  }
  FillAbsent(now.utilization_percent, reading.utilization_percent);
  FillAbsent(now.power_watts, reading.power_watts);
  FillAbsent(now.power_limit_watts, reading.power_limit_watts);
  FillAbsent(now.temperature_celsius, reading.temperature_celsius);
  FillAbsent(now.state, reading.state);
  if (reading.processes && !now.holders) {
    now.holders.emplace();
    for (const ProcessOnCard& process : *reading.processes) {
      now.holders->push_back({process.pid, std::nullopt, std::nullopt, process.memory_bytes});
    }
  }
  card.notes.insert(card.notes.end(), reading.notes.begin(), reading.notes.end());
  if (std::find(card.sources.begin(), card.sources.end(), source.source) == card.sources.end()) {
    card.sources.push_back(source.source);
  }
}

std::string Absence(const VendorTraits& traits) {
  std::string reason = "no PCI device of vendor ";
  char id[8];
  std::snprintf(id, sizeof id, "%04x", traits.pci_vendors[0]);
  reason += id;
  if (*traits.node_prefix != '\0') reason += std::string(" and no ") + traits.node_prefix + "*";
  return reason;
}

}  // namespace

std::vector<Card> CardsFromSurvey(const VendorTraits& traits, const Survey& survey,
                                  const std::vector<PciFunction>& functions) {
  std::vector<Card> cards;
  const auto nodes = survey.Nodes(traits);
  const auto driver = *traits.kernel_module == '\0'
                          ? std::nullopt
                          : survey.root.ReadLine(std::string("/sys/module/") + traits.kernel_module + "/version");
  for (const PciFunction& function : functions) {
    Card card = MakeCard(traits, static_cast<int>(cards.size()));
    card.pci_address = function.address;
    card.numa_node = function.numa_node;
    card.local_cpus = function.local_cpus;
    card.link = function.link;
    card.sources = {"PCI"};
    if (cards.size() < nodes.size() && nodes.size() == functions.size()) {
      card.index = nodes[cards.size()].first;
      card.nodes = {nodes[cards.size()].second};
    }
    cards.push_back(std::move(card));
  }
  if (functions.empty()) {
    for (const auto& [number, path] : nodes) {
      Card card = MakeCard(traits, number);
      card.nodes = {path};
      card.sources = {"device node"};
      cards.push_back(std::move(card));
    }
  }
  for (Card& card : cards) {
    if (driver) card.driver = base::Printable(*driver);
  }
  return cards;
}

std::vector<Card> Merge(const VendorTraits& traits, std::vector<Card> cards, const SourceReading& reading) {
  for (const CardReading& reported : reading.cards) {
    Card* card = FindCard(cards, reported);
    if (card == nullptr) {
      cards.push_back(MakeCard(traits, reported.index.value_or(FreeIndex(cards))));
      card = &cards.back();
    } else if (reported.index) {
      card->index = *reported.index;
    }
    FillCard(*card, reported, reading);
  }
  std::stable_sort(cards.begin(), cards.end(), [](const Card& a, const Card& b) { return a.index < b.index; });
  return cards;
}

void AssignNodes(const VendorTraits& traits, const Survey& survey, std::vector<Card>& cards) {
  const auto nodes = survey.Nodes(traits);
  for (Card& card : cards) {
    card.nodes.clear();
    for (const auto& [number, path] : nodes) {
      if (number == card.index) card.nodes.push_back(path);
    }
  }
}

VendorReport MergeAll(const VendorTraits& traits, const Survey& survey, const std::vector<PciFunction>& functions,
                      const std::vector<Answer>& answers) {
  VendorReport report;
  report.vendor = traits.name;
  report.title = traits.title;
  report.cards = CardsFromSurvey(traits, survey, functions);
  for (const Answer& answer : answers) {
    if (!answer.reading) {
      report.failures.push_back(answer.title + " " + answer.reading.error().message);
      continue;
    }
    report.cards = Merge(traits, std::move(report.cards), *answer.reading);
    for (const std::string& note : answer.reading->notes) report.notes.push_back(answer.title + ": " + note);
  }
  if (report.cards.empty()) report.absence = Absence(traits);
  return report;
}

}  // namespace fulldeck::device
