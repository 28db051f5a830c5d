#include "job/cards/card_selection.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "job/cards/device_choice.h"

namespace fulldeck::job {
namespace {

using base::Error;
using base::Result;
using device::Card;

// Whether `kind` is a name for this card.
bool IsOfKind(const Card& card, std::string_view kind) {
  return kind == "gpu" || card.kind == kind || card.vendor == kind || card.torch_type == kind;
}

// Cards that one script can use together: torch numbers those of one vendor and type from 0.
std::string FamilyOf(const Card& card) {
  return card.vendor + "/" + card.torch_type.value_or(card.kind);
}

int TorchNumber(const Card& card) {
  const auto colon = card.torch_device ? card.torch_device->rfind(':') : std::string::npos;
  if (colon == std::string::npos) return card.index;
  return base::ParseInteger<int>(std::string_view(*card.torch_device).substr(colon + 1)).value_or(card.index);
}

// "8 gcu (enflame), 2 cuda (nvidia), hidden: …", or why no cards were found.
std::string WhatIsThere(const device::Inventory& inventory) {
  std::vector<std::string> parts;
  for (const device::VendorReport& vendor : inventory.vendors) {
    const auto hidden = static_cast<std::size_t>(
        std::count_if(vendor.cards.begin(), vendor.cards.end(), [](const Card& card) { return !card.visible; }));
    if (!vendor.cards.empty()) {
      parts.push_back(fmt::format("{} {} of {}{}", vendor.cards.size(), vendor.cards.front().kind, vendor.vendor,
                                  hidden > 0 ? fmt::format(", {} of them hidden by {}", hidden,
                                                           vendor.visibility.value_or("a visible-device list"))
                                             : ""));
    }
  }
  return parts.empty() ? "no card was found (fulldeck devices --all says why)" : "there are " + base::Join(parts, "; ");
}

std::string HiddenNote(const device::VendorReport& vendor, std::size_t hidden) {
  return fmt::format("{} hides {} of {} {} cards", vendor.visibility.value_or("a visible-device list"), hidden,
                     vendor.cards.size(), vendor.title);
}

class Selector {
 public:
  Selector(const LaunchFlags& flags, const device::Inventory& inventory, int cpus, int local_launcher,
           int local_launchers)
      : flags_(flags),
        inventory_(inventory),
        cpus_(std::max(1, cpus)),
        local_launcher_(local_launcher),
        local_launchers_(std::max(1, local_launchers)) {}

  Result<CardSelection> Select() {
    auto choice = ParseDeviceChoice(flags_.devices);
    if (!choice)
      return Error{fmt::format("--devices '{}': {}", base::Printable(flags_.devices), choice.error().message)};
    choice_ = std::move(*choice);
    if (choice_.cpu || flags_.nproc_kind == "cpu") return OnCpu();
    const auto chosen = ChooseCards();
    if (!chosen) return chosen.error();
    if (selection_.cards.empty()) return OnCpu();
    const auto taken = TakeShare();
    if (!taken) return taken.error();
    selection_.ranks = flags_.nproc.value_or(static_cast<int>(selection_.cards.size()));
    const auto fits = CheckShare();
    if (!fits) return fits.error();
    LeaveOutDropped();
    NoteWhatStaysIdle();
    NoteRanksThatAreNotThere();
    return std::move(selection_);
  }

 private:
  CardSelection OnCpu() {
    selection_.cards.clear();
    selection_.cpu_requested = true;
    const int share = std::max(1, cpus_ / local_launchers_);
    selection_.ranks = flags_.nproc.value_or(flags_.nproc_kind == "cpu" ? std::min(share, 4096) : 1);
    NoteRanksThatAreNotThere();
    return std::move(selection_);
  }

  // The requested kind of cards, from either flag.
  std::optional<std::string> Kind() const { return choice_.kind ? choice_.kind : flags_.nproc_kind; }

  Result<void> ChooseCards() {
    std::vector<const Card*> candidates;
    for (const device::VendorReport& vendor : inventory_.vendors) {
      const bool is_requested = std::any_of(vendor.cards.begin(), vendor.cards.end(),
                                            [&](const Card& card) { return !Kind() || IsOfKind(card, *Kind()); });
      if (!is_requested) continue;
      // In this case the visible cards are unknown.
      if (vendor.bad_visibility) return Error{*vendor.bad_visibility};
      std::size_t hidden = 0;
      for (const Card& card : vendor.cards) {
        if (Kind() && !IsOfKind(card, *Kind())) continue;
        candidates.push_back(&card);
        if (!card.visible) ++hidden;
      }
      if (hidden > 0) selection_.notes.push_back(HiddenNote(vendor, hidden));
    }
    for (const device::VendorReport& vendor : inventory_.vendors) {
      if (!vendor.cards.empty() || Kind()) continue;
      for (const std::string& failure : vendor.failures) {
        selection_.notes.push_back(fmt::format("{}: {}", vendor.title, failure));
      }
    }
    const auto chosen = choice_.indices.empty() ? TakeVisible(candidates) : TakeListed(candidates);
    if (!chosen) return chosen;
    return CheckKindOfRanks();
  }

  Result<void> RefuseTwoFamilies(const std::vector<const Card*>& cards) const {
    std::vector<std::string> names;
    std::vector<std::string> families;
    for (const Card* card : cards) {
      if (std::find(families.begin(), families.end(), FamilyOf(*card)) != families.end()) continue;
      families.push_back(FamilyOf(*card));
      // The first word that distinguishes this family from all others here.
      std::string name = card->kind;
      for (const std::string& word : {card->kind, card->torch_type.value_or(card->kind), card->vendor}) {
        name = word;
        if (std::all_of(cards.begin(), cards.end(), [&](const Card* other) {
              return FamilyOf(*other) == FamilyOf(*card) || !IsOfKind(*other, word);
            })) {
          break;
        }
      }
      names.push_back(name);
    }
    if (families.size() < 2) return {};
    return Error{fmt::format("there are cards of several kinds, and one run uses one: --devices {}",
                             base::Join(names, " or --devices "))};
  }

  // The visible ones in torch's order; the first `count` of them if a number was given.
  Result<void> TakeVisible(std::vector<const Card*> cards) {
    cards.erase(std::remove_if(cards.begin(), cards.end(), [](const Card* card) { return !card->visible; }),
                cards.end());
    const auto one_family = RefuseTwoFamilies(cards);
    if (!one_family) return one_family;
    std::stable_sort(cards.begin(), cards.end(),
                     [](const Card* a, const Card* b) { return TorchNumber(*a) < TorchNumber(*b); });
    if (cards.empty() && (Kind() || choice_.count)) {
      return Error{fmt::format("{} asks for cards, and {}. Ranks on the processors: --devices cpu", DescribeRequest(),
                               WhatIsThere(inventory_))};
    }
    if (choice_.count) {
      const auto count = static_cast<std::size_t>(*choice_.count);
      if (count > cards.size()) {
        return Error{fmt::format("--devices {} asks for {}, and {} visible; {}", base::Printable(flags_.devices),
                                 base::Counted(count, "card"),
                                 cards.size() == 1 ? "1 is" : fmt::format("{} are", cards.size()),
                                 WhatIsThere(inventory_))};
      }
      cards.resize(count);
    }
    for (const Card* card : cards) selection_.cards.push_back(*card);
    return {};
  }

  Result<void> TakeListed(const std::vector<const Card*>& cards) {
    std::vector<const Card*> chosen;
    for (const int index : choice_.indices) {
      std::vector<const Card*> found;
      std::copy_if(cards.begin(), cards.end(), std::back_inserter(found),
                   [&](const Card* card) { return card->index == index; });
      if (found.empty()) {
        return Error{fmt::format("--devices {}: there is no {}card {}; {}", base::Printable(flags_.devices),
                                 Kind() && *Kind() != "gpu" ? base::Printable(*Kind()) + " " : "", index,
                                 WhatIsThere(inventory_))};
      }
      chosen.insert(chosen.end(), found.begin(), found.end());
    }
    const auto one_family = RefuseTwoFamilies(chosen);
    if (!one_family) {
      return Error{one_family.error().message + fmt::format("; or a list with its kind in front, such as {}:{}",
                                                            chosen.front()->kind, choice_.indices.front())};
    }
    for (const Card* card : chosen) {
      if (!card->visible) {
        return Error{fmt::format("--devices {}: {} is hidden by {}; change one of the two",
                                 base::Printable(flags_.devices), device::NameOf(*card), ListOf(card->vendor))};
      }
      selection_.cards.push_back(*card);
    }
    return {};
  }

  std::string ListOf(const std::string& vendor) const {
    for (const device::VendorReport& report : inventory_.vendors) {
      if (report.vendor == vendor && report.visibility) return *report.visibility;
    }
    return "a visible-device list";
  }

  std::string DescribeRequest() const {
    if (choice_.kind || choice_.count) return "--devices " + base::Printable(flags_.devices);
    return "--nproc-per-node " + base::Printable(*flags_.nproc_kind);
  }

  // --devices has chosen; --nproc-per-node KIND must refer to the same cards.
  Result<void> CheckKindOfRanks() const {
    if (!flags_.nproc_kind) return {};
    for (const Card& card : selection_.cards) {
      if (IsOfKind(card, *flags_.nproc_kind)) continue;
      return Error{fmt::format("--nproc-per-node {} contradicts --devices {}, which is {}; leave one of them out",
                               base::Printable(*flags_.nproc_kind), base::Printable(flags_.devices),
                               device::NameOf(card))};
    }
    return {};
  }

  // The share of this launcher, if several launchers on this node divide the cards.
  Result<void> TakeShare() {
    if (local_launchers_ == 1) return {};
    const std::size_t cards = selection_.cards.size();
    const auto launchers = static_cast<std::size_t>(local_launchers_);
    const auto launcher = static_cast<std::size_t>(local_launcher_);
    if (cards < launchers) {
      if (!flags_.share_cards) {
        return Error{
            fmt::format("{} on this host divide {} among them: start fewer launchers, or allow sharing with "
                        "--share-cards, or run on the processors with --devices cpu",
                        base::Counted(launchers, "launcher"), base::Counted(cards, "card"))};
      }
      selection_.cards = {selection_.cards[launcher % cards]};
    } else {
      const auto begin = static_cast<std::ptrdiff_t>(cards * launcher / launchers);
      const auto end = static_cast<std::ptrdiff_t>(cards * (launcher + 1) / launchers);
      selection_.cards = std::vector<Card>(selection_.cards.begin() + begin, selection_.cards.begin() + end);
    }
    std::vector<std::string> names;
    for (const Card& card : selection_.cards) names.push_back(device::NameOf(card));
    selection_.notes.push_back(fmt::format("launcher {} of {} on this host: its share of the {} cards is {}",
                                           local_launcher_, local_launchers_, cards, base::Join(names, ", ")));
    return {};
  }

  // Example: srun --ntasks-per-node=8 fulldeck run --nproc-per-node 8 would start 64 ranks on 8 cards, which is never
  // intended.
  Result<void> CheckShare() const {
    if (local_launchers_ == 1 || flags_.share_cards || !flags_.nproc) return {};
    if (static_cast<std::size_t>(*flags_.nproc) <= selection_.cards.size()) return {};
    return Error{fmt::format(
        "--nproc-per-node {0} in each of {1} launchers on this host is {2} ranks, and each launcher's share is {3}. "
        "Start "
        "one launcher a host (srun --ntasks-per-node=1), or leave --nproc-per-node out, or allow sharing with "
        "--share-cards",
        *flags_.nproc, local_launchers_, *flags_.nproc * local_launchers_,
        base::Counted(selection_.cards.size(), "card"))};
  }

  void LeaveOutDropped() {
    if (!flags_.nproc || !choice_.indices.empty()) return;
    std::vector<Card>& cards = selection_.cards;
    const auto working = std::count_if(cards.begin(), cards.end(), [](const Card& card) { return card.present; });
    if (working < *flags_.nproc || working == static_cast<std::ptrdiff_t>(cards.size())) return;
    for (const Card& card : cards) {
      if (card.present) continue;
      selection_.notes.push_back(fmt::format("{} has dropped off the bus and is left out; {} run on the others",
                                             device::NameOf(card),
                                             base::Counted(static_cast<std::size_t>(*flags_.nproc), "rank")));
    }
    cards.erase(std::remove_if(cards.begin(), cards.end(), [](const Card& card) { return !card.present; }),
                cards.end());
  }

  // A user who names cards expects all of them to be used.
  void NoteWhatStaysIdle() {
    const std::size_t cards = selection_.cards.size();
    const auto ranks = static_cast<std::size_t>(selection_.ranks);
    if ((choice_.indices.empty() && !choice_.count) || ranks >= cards) return;
    selection_.notes.push_back(fmt::format("--devices {} names {} cards and --nproc-per-node asks for {}: {} idle",
                                           base::Printable(flags_.devices), cards, base::Counted(ranks, "rank"),
                                           cards - ranks == 1 ? "one stays" : fmt::format("{} stay", cards - ranks)));
  }

  void NoteRanksThatAreNotThere() {
    const auto note = [&](const char* flag, int rank) {
      if (rank < selection_.ranks) return;
      selection_.notes.push_back(fmt::format("{} names local rank {}, and this host has {}", flag, rank,
                                             base::Counted(static_cast<std::size_t>(selection_.ranks), "rank")));
    };
    const auto last_of = [](const StreamChoice& choice) {
      return choice.by_local_rank.empty() ? -1 : choice.by_local_rank.rbegin()->first;
    };
    note("--redirects", last_of(flags_.redirects));
    if (flags_.tee) note("--tee", last_of(*flags_.tee));
    if (!flags_.shown_local_ranks.empty()) note("--local-ranks-filter", flags_.shown_local_ranks.back());
  }

  const LaunchFlags& flags_;
  const device::Inventory& inventory_;
  const int cpus_;
  const int local_launcher_;
  const int local_launchers_;
  DeviceChoice choice_;
  CardSelection selection_;
};

}  // namespace

Result<CardSelection> SelectCards(const LaunchFlags& flags, const device::Inventory& inventory, int cpus,
                                  int local_launcher, int local_launchers) {
  return Selector(flags, inventory, cpus, local_launcher, local_launchers).Select();
}

}  // namespace fulldeck::job
