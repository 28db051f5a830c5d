// Merges what several sources report about the same cards, by the same rules for every vendor.
#pragma once

#include <string>
#include <vector>

#include "device/card.h"
#include "device/card_reading.h"
#include "device/source.h"
#include "device/survey.h"
#include "device/vendor.h"

namespace fulldeck::device {

// One card per PCI function, numbered by address, with the device node of the same position if it exists. If the
// kernel shows no PCI function (some containers), one card per device node.
std::vector<Card> CardsFromSurvey(const VendorTraits& traits, const Survey& survey,
                                  const std::vector<PciFunction>& functions);

// Merges a reading into `cards`. A reading finds its card by PCI address, then by index; if it finds none, it becomes
// a new card. Existing values are kept, so merge the better source first. Returns the cards by index.
std::vector<Card> Merge(const VendorTraits& traits, std::vector<Card> cards, const SourceReading& reading);

// Gives each card the device node of its own number, if that node exists.
void AssignNodes(const VendorTraits& traits, const Survey& survey, std::vector<Card>& cards);

// A report with the cards of the survey and of all good answers, in order; failed answers become failures. If there
// is no card and no failure, `absence` names what the survey did not find.
VendorReport MergeAll(const VendorTraits& traits, const Survey& survey, const std::vector<PciFunction>& functions,
                      const std::vector<Answer>& answers);

}  // namespace fulldeck::device
