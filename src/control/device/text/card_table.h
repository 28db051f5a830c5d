// A tool's whole card table, two lines a card under two title lines: finds the titles, reads every row by the title
// line that it fits, and puts the rows of one card together. Vendor-neutral: the vendor brings its titles and says
// afterwards which number is the index. Not for a list with one line a card (efsmi --dmon).
//
// Damaged text: a card that lost a line keeps what its other line says, and its notes say what is missing. A row whose
// title line is missing is not read by guesswork; only its PCI address, which cannot be mistaken, is kept. Two rows are
// one card only when no ruling or unreadable line stands between them. Thread rule: pure function.
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
  bool has_both_titles = false;       // both of a card's were
};

inline constexpr std::size_t kMaxProcessRows = 4096;

CardTable ReadCardTable(const TextLines& text, std::span<const Title> known, std::string_view tool);

// "efsmi printed no card table; it began: …", or that it printed nothing. For a table without cards.
std::string NoTableNote(const TextLines& text, std::string_view tool);

// Every card that is left can be told apart, and none is counted twice. Of cards with the same index the first keeps
// it. A card with neither index nor PCI address is left out, because it is perhaps one that another source lists as
// well. Notes say both.
void KeepIdentifiedCards(SourceReading& reading, std::string_view tool);

}  // namespace fulldeck::device
