// Helpers to write findings about cards: by name, with all good cards in one line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "device/card.h"
#include "doctor/check.h"

namespace fulldeck::doctor {

using device::Card;
using Findings = std::vector<Finding>;
using Figures = std::vector<std::pair<std::string, std::string>>;

inline Finding MakeFinding(Verdict verdict, base::BilingualText evidence, base::BilingualText fix = {},
                           std::string row = {}, Figures figures = {}) {
  return {verdict, std::move(evidence), std::move(fix), std::move(row), std::move(figures)};
}

inline std::string Title(const Card& card) {
  std::string title = device::NameOf(card);
  if (card.model) title += " (" + *card.model + (card.serial ? ", " + *card.serial : "") + ")";
  return card.simulated ? title + " [simulated]" : title;
}

inline std::string Names(const std::vector<const Card*>& cards) {
  std::vector<std::string> names;
  for (const Card* card : cards) names.push_back(device::NameOf(*card));
  return base::Join(names, ", ");
}

// For checks of each card if there is no card: card-present reports that; these checks do not apply.
inline Findings NoCard() {
  return {};
}

// Collects one finding for all good cards, one for all unknown ones, and one for each bad one, which come first.
class PerCard {
 public:
  void Bad(Finding finding) { findings_.push_back(std::move(finding)); }
  void Good(const Card& card) { good_.push_back(&card); }
  void Unknown(const Card& card) { unknown_.push_back(&card); }

  Findings Done(const base::BilingualText& all_well, const base::BilingualText& unknown_text,
                const base::BilingualText& unknown_fix) {
    if (!good_.empty()) {
      findings_.push_back(
          MakeFinding(Verdict::kOk, {Names(good_) + ": " + all_well.english, Names(good_) + "：" + all_well.chinese}));
    }
    if (!unknown_.empty()) {
      findings_.push_back(MakeFinding(
          Verdict::kCannotTell,
          {Names(unknown_) + ": " + unknown_text.english, Names(unknown_) + "：" + unknown_text.chinese}, unknown_fix));
    }
    return std::move(findings_);
  }

 private:
  Findings findings_;
  std::vector<const Card*> good_;
  std::vector<const Card*> unknown_;
};

}  // namespace fulldeck::doctor
