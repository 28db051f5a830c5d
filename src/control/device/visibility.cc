#include "device/visibility.h"

#include <algorithm>

#include "base/text.h"

namespace fulldeck::device {
namespace {

std::string RightForms(const VendorTraits& traits, const std::vector<Card>& cards) {
  std::string forms = "Right forms: a comma-separated list of card numbers";
  if (!cards.empty()) {
    forms += " from " + std::to_string(cards.front().index) + " to " + std::to_string(cards.back().index);
  }
  if (traits.visibility_takes_uuids) forms += " or of UUIDs that start with GPU-";
  return forms + ", each once; empty or -1 hides every card";
}

// Position of the card that `entry` names. A UUID may be abbreviated as long as it is unambiguous.
std::optional<std::size_t> FindCard(const VendorTraits& traits, std::string_view entry,
                                    const std::vector<Card>& cards) {
  if (const auto number = base::ParseInteger<int>(entry)) {
    const auto card = std::find_if(cards.begin(), cards.end(), [&](const Card& c) { return c.index == *number; });
    if (card != cards.end()) return static_cast<std::size_t>(card - cards.begin());
    return std::nullopt;
  }
  if (!traits.visibility_takes_uuids || entry.size() < 5) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (!cards[i].uuid || !cards[i].uuid->starts_with(entry)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace

base::Result<VisibilityList> ParseVisibility(const VendorTraits& traits, const std::string& variable,
                                             const std::string& value, const std::vector<Card>& cards) {
  VisibilityList list{variable, value, {}};
  if (base::Trim(value).empty()) return list;
  for (const std::string_view part : base::Split(value, ',')) {
    const std::string_view entry = base::Trim(part);
    // The vendors' runtimes treat -1 as the end of the list.
    if (entry == "-1") return list;
    const auto wrong = [&](std::string_view why) {
      return base::Error{variable + "='" + base::Printable(value) + "': '" + base::Printable(entry) + "' " +
                         std::string(why) + ". " + RightForms(traits, cards) + "."};
    };
    const auto card = FindCard(traits, entry, cards);
    if (!card) return wrong("names no card of this machine");
    if (std::find(list.cards.begin(), list.cards.end(), *card) != list.cards.end()) return wrong("comes twice");
    list.cards.push_back(*card);
  }
  return list;
}

base::Result<std::optional<VisibilityList>> ReadVisibility(const VendorTraits& traits, const std::vector<Card>& cards,
                                                           const base::Environment& environment) {
  for (const std::string variable : {traits.visibility_variable, traits.second_visibility_variable}) {
    const auto value = variable.empty() ? std::nullopt : environment.Get(variable);
    if (!value) continue;
    auto list = ParseVisibility(traits, variable, *value, cards);
    if (!list) return list.error();
    return std::optional(std::move(*list));
  }
  return std::optional<VisibilityList>();
}

}  // namespace fulldeck::device
