// Reads the whole card table of a tool that prints two lines per card under two title lines: finds the titles, reads
// every row by the title line that it fits, and combines the rows of each card. Vendor-neutral: the vendor supplies
// its titles and decides afterwards which number is the index. Not for a list with one line per card (efsmi --dmon).
//
// Damaged text: a card that lost a line keeps the values of its other line, and its notes say what is missing. A row
// whose title line is missing is not guessed; only its PCI address, which is unambiguous, is kept. Two rows belong to
// one card only if there is no ruling or unreadable line between them. Thread rule: pure function.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/text/text_scan.h"
#include "device/text/titled_row.h"

namespace fulldeck::device {

struct CardTable {
  std::vector<RowReading> cards;      // in the order printed, at most kMaxCards; `card.notes` is filled
  std::vector<RowReading> processes;  // rows under a title line with a process id, at most kMaxProcessRows
  std::vector<std::string> notes;     // about rows that belong to no card
  bool has_titles = false;            // a title line was found
  bool has_both_titles = false;       // both title lines of a card were found
};

inline constexpr std::size_t kMaxProcessRows = 4096;

CardTable ReadCardTable(const TextLines& text, std::span<const Title> known, std::string_view tool);

// "efsmi printed no card table; it began: …", or that it printed nothing. For a table without cards.
std::string NoTableNote(const TextLines& text, std::string_view tool);

// Makes sure that all cards can be distinguished and none is counted twice. Of cards with the same index, the first
// keeps it. A card with neither index nor PCI address is omitted, because another source may list it, too. Notes
// report both cases.
void KeepIdentifiedCards(SourceReading& reading, std::string_view tool);

}  // namespace fulldeck::device
