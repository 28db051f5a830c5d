// Puts what several sources say about the same cards together: the same rules for every vendor.
#pragma once

#include <string>
#include <vector>

#include "device/card.h"
#include "device/card_reading.h"
#include "device/source.h"
#include "device/survey.h"
#include "device/vendor.h"

namespace fulldeck::device {

// One card a PCI function, numbered by address, with the node of the same position where there is one. Where the kernel
// shows no PCI function (some containers), one card a node.
std::vector<Card> CardsFromSurvey(const VendorTraits& traits, const Survey& survey,
                                  const std::vector<PciFunction>& functions);

// Merges a reading into `cards`. A reading finds its card by PCI address, then by index; one that finds none becomes a
// new card. What is already told stays: ask the better source first. Returns the cards by index.
std::vector<Card> Merge(const VendorTraits& traits, std::vector<Card> cards, const SourceReading& reading);

// Gives each card the device node of its own number, and none where there is no such node.
void AssignNodes(const VendorTraits& traits, const Survey& survey, std::vector<Card>& cards);

// A report with the cards of the survey and of all good answers, in their order; bad answers become failures. With no
// card and no failure, `absence` is what the survey did not find.
VendorReport MergeAll(const VendorTraits& traits, const Survey& survey, const std::vector<PciFunction>& functions,
                      const std::vector<Answer>& answers);

}  // namespace fulldeck::device
