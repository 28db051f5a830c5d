#include "device/inventory.h"

#include <map>

#include "base/text.h"
#include "device/holders.h"
#include "device/host.h"
#include "device/simulated.h"
#include "device/visibility.h"
#include "wire/simulated_spec.h"
#include "wire/variables.h"

namespace fulldeck::device {
namespace {

void NameForTorch(Card& card, std::map<std::string, int>& next_of_type) {
  if (card.torch_type) card.torch_device = *card.torch_type + ":" + std::to_string(next_of_type[*card.torch_type]++);
}

// Marks hidden cards and gives the visible ones the numbers that torch will give them.
void ApplyVisibility(const VendorTraits& traits, const base::Environment& environment, VendorReport& report) {
  if (report.cards.empty()) return;
  if (const auto reported = environment.Get(traits.container_variable)) {
    report.container_visibility = std::string(traits.container_variable) + "=" + base::Printable(*reported);
  }
  std::map<std::string, int> next_of_type;
  const auto list = ReadVisibility(traits, report.cards, environment);
  if (!list) {
    report.bad_visibility = list.error().message;
    return;
  }
  if (!*list) {
    for (Card& card : report.cards) NameForTorch(card, next_of_type);
    return;
  }
  report.visibility = (*list)->variable + "=" + base::Printable((*list)->value);
  for (Card& card : report.cards) card.visible = false;
  for (const std::size_t position : (*list)->cards) {
    report.cards[position].visible = true;
    NameForTorch(report.cards[position], next_of_type);
  }
}

}  // namespace

std::vector<const Card*> Inventory::Cards() const {
  std::vector<const Card*> cards;
  for (const VendorReport& report : vendors) {
    for (const Card& card : report.cards) cards.push_back(&card);
  }
  return cards;
}

InventoryReader::InventoryReader(InventoryOptions options)
    : options_(std::move(options)), runner_(options_.helper_program) {}

base::Result<Inventory> InventoryReader::Read() {
  Inventory inventory;
  std::vector<std::unique_ptr<Vendor>> vendors;
  if (const auto text = options_.environment.Get(wire::kSimulateVariable); text && !text->empty()) {
    auto spec = wire::ParseSimulatedSpec(*text);
    if (!spec) return spec.error();
    inventory.simulated = true;
    vendors.push_back(MakeSimulated(std::move(*spec), options_.environment));
  } else {
    vendors = RealVendors();
  }

  const Survey survey = inventory.simulated ? Survey{options_.root, {}} : TakeSurvey(options_.root);
  std::vector<Source> sources;
  std::vector<std::size_t> first_source;
  for (const auto& vendor : vendors) {
    first_source.push_back(sources.size());
    for (Source& source : vendor->Sources(survey, options_.environment)) sources.push_back(std::move(source));
  }
  first_source.push_back(sources.size());
  const std::vector<Answer> answers = runner_.Query(sources, options_.timeout);

  for (std::size_t i = 0; i < vendors.size(); ++i) {
    const auto begin = answers.begin() + static_cast<std::ptrdiff_t>(first_source[i]);
    const auto end = answers.begin() + static_cast<std::ptrdiff_t>(first_source[i + 1]);
    VendorReport report = vendors[i]->Report(survey, std::vector<Answer>(begin, end));
    ApplyVisibility(vendors[i]->traits(), options_.environment, report);
    inventory.vendors.push_back(std::move(report));
  }
  std::vector<Card*> cards;
  for (VendorReport& report : inventory.vendors) {
    for (Card& card : report.cards) cards.push_back(&card);
  }
  FillHolders(options_.root, cards);
  inventory.host = ReadHost(options_.root);
  return inventory;
}

}  // namespace fulldeck::device
