#include "device/text/card_table.h"

#include <set>
#include <utility>

#include "base/text.h"
#include "device/pci_address.h"

namespace fulldeck::device {
namespace {

constexpr std::size_t kMaxTitleLines = 16;

std::optional<std::string> AddressIn(const BoxedRow& row) {
  for (const std::string_view cell : row.cells) {
    for (const std::string_view word : Words(cell)) {
      if (std::optional<std::string> address = NormalPciAddress(word)) return address;
    }
  }
  return std::nullopt;
}

std::string Listed(const std::vector<std::string_view>& titles) {
  std::string out;
  std::set<std::string_view> mentioned;
  for (const std::string_view title : titles) {
    if (title == "?" || !mentioned.insert(title).second) continue;
    if (!out.empty()) out += ", ";
    out += title;
  }
  return out;
}

class Assembler {
 public:
  Assembler(std::span<const Title> known, std::string_view tool) : known_(known), tool_(tool) {
    title_lines_.reserve(kMaxTitleLines);  // title_lines_ must not reallocate: pointers into it are kept
  }

  void Line(std::string_view line) {
    const std::optional<BoxedRow> row = ReadBoxedRow(line);
    if (!row) {
      CloseCard();
    } else if (std::optional<TitleLine> titles = ReadTitleLine(*row, known_)) {
      CloseCard();
      AddTitles(std::move(*titles));
    } else if (const Fit fit = BestFit(*row); fit.titles != nullptr) {
      rows_since_titles_ = true;
      Add(*fit.titles, fit.reading);
    } else if (row->cells.size() >= 2 || (!row->closed && !title_lines_.empty())) {
      rows_since_titles_ = true;
      AddUnread(*row);
    } else {
      CloseCard();
    }
  }

  CardTable Take() {
    CloseCard();
    table_.has_titles = !title_lines_.empty();
    for (const Titles& titles : title_lines_) table_.has_both_titles |= HasBothLines(titles.group);
    if (unread_rows_ > 0) {
      const bool one = unread_rows_ == 1;
      table_.notes.push_back(tool_ + ": " + std::to_string(unread_rows_) + (one ? " line" : " lines") +
                             " of its table could not be read: " + (one ? "it fits" : "they fit") + " no title line.");
    }
    if (cards_left_out_) {
      table_.notes.push_back(tool_ + " lists more than " + std::to_string(kMaxCards) +
                             " cards; the rest was left out.");
    }
    return std::move(table_);
  }

 private:
  struct Titles {
    TitleLine line;
    int group = 0;  // consecutive title lines; those of the last group apply to the rows below
    bool of_processes = false;
    bool opens_card = false;  // contains the card's number; the others continue a card
  };
  struct Fit {
    const Titles* titles = nullptr;
    RowReading reading;
  };

  void AddTitles(TitleLine line) {
    if (title_lines_.size() == kMaxTitleLines) return;
    if (std::exchange(rows_since_titles_, false)) ++group_;
    Titles titles{std::move(line), group_};
    titles.of_processes = HasTitle(titles.line, Field::kProcessId);
    titles.opens_card = !titles.of_processes && HasTitle(titles.line, Field::kNumber);
    title_lines_.push_back(std::move(titles));
  }

  // Whether both title lines of a card table exist.
  bool HasBothLines(int group) const {
    bool opening = false;
    bool continuing = false;
    for (const Titles& titles : title_lines_) {
      if (titles.group != group || titles.of_processes) continue;
      (titles.opens_card ? opening : continuing) = true;
    }
    return opening && continuing;
  }

  // If both title lines exist, the better fit wins, even if a value in it is invalid. If one is missing, a row that
  // fits badly may belong to the missing one: accept a perfect fit only.
  Fit BestFit(const BoxedRow& row) const {
    const bool whole = HasBothLines(group_);
    Fit best;
    for (const Titles& titles : title_lines_) {
      if (titles.group != group_) continue;
      RowReading reading = ReadRow(titles.line, row);
      const int allowed = whole || titles.of_processes ? reading.understood - 1 : 0;
      if (reading.understood == 0 || reading.misfits() > allowed) continue;
      const bool same = best.titles != nullptr && reading.misfits() == best.reading.misfits() &&
                        reading.understood == best.reading.understood;
      // The rest of a truncated line can fit either; a complete line decides.
      if (same && reading.cut) return Fit{};
      const bool better = best.titles == nullptr || reading.misfits() < best.reading.misfits() ||
                          (reading.misfits() == best.reading.misfits() && reading.understood > best.reading.understood);
      if (better) best = Fit{&titles, std::move(reading)};
    }
    return best;
  }

  void Add(const Titles& titles, const RowReading& reading) {
    if (titles.of_processes) {
      CloseCard();
      if (table_.processes.size() < kMaxProcessRows) table_.processes.push_back(reading);
      return;
    }
    if (titles.opens_card || !open_ || lines_of_open_.contains(&titles)) OpenCard();
    if (!open_) return;
    lines_of_open_.insert(&titles);
    RowReading& card = table_.cards.back();
    FillAbsent(reading.card, card.card);
    if (!card.number) card.number = reading.number;
    if (!card.chip) card.chip = reading.chip;
    if (!card.physical_id) card.physical_id = reading.physical_id;
    if (!card.other_memory_total_bytes) {
      card.other_memory_used_bytes = reading.other_memory_used_bytes;
      card.other_memory_total_bytes = reading.other_memory_total_bytes;
    }
    card.unreadable.insert(card.unreadable.end(), reading.unreadable.begin(), reading.unreadable.end());
    card.cut |= reading.cut;
  }

  void AddUnread(const BoxedRow& row) {
    ++unread_rows_;
    std::optional<std::string> address = AddressIn(row);
    if (!address) {
      CloseCard();
      return;
    }
    if (!AwaitsAddress()) OpenCard();
    if (open_) table_.cards.back().card.pci_address = std::move(address);
  }

  // The open card has its first line, and the address belongs to the second.
  bool AwaitsAddress() const {
    if (!open_ || lines_of_open_.size() != 1) return false;
    const Titles& first = **lines_of_open_.begin();
    return first.opens_card && !HasTitle(first.line, Field::kPciAddress);
  }

  void OpenCard() {
    CloseCard();
    if (table_.cards.size() == kMaxCards) {
      cards_left_out_ = true;
      return;
    }
    table_.cards.emplace_back();
    open_ = true;
  }

  void CloseCard() {
    if (!std::exchange(open_, false)) return;
    const std::set<const Titles*> lines = std::exchange(lines_of_open_, {});
    RowReading& card = table_.cards.back();
    std::vector<std::string>& notes = card.card.notes;
    if (const std::string titles = Listed(card.unreadable); !titles.empty()) {
      notes.push_back(tool_ + ": could not read " + titles + ".");
    }
    if (card.cut) notes.push_back(tool_ + ": a line about this card is cut off.");
    if (lines.empty()) {
      notes.push_back(tool_ + ": of this card only the PCI address could be read.");
      return;
    }
    bool opened = false;
    bool continued = false;
    for (const Titles* titles : lines) (titles->opens_card ? opened : continued) = true;
    if (!opened) notes.push_back(tool_ + ": " + LineWith(true) + " could not be read for this card.");
    if (!continued) notes.push_back(tool_ + ": " + LineWith(false) + " could not be read for this card.");
  }

  std::string LineWith(bool number) const {
    for (const Titles& titles : title_lines_) {
      if (titles.opens_card == number && !titles.of_processes) return "the line with " + WantedTitles(titles.line);
    }
    return number ? "the first line" : "the second line";
  }

  std::span<const Title> known_;
  std::string tool_;
  std::vector<Titles> title_lines_;
  int group_ = 0;
  bool rows_since_titles_ = false;
  CardTable table_;
  bool open_ = false;  // the last card may get more lines
  std::set<const Titles*> lines_of_open_;
  std::size_t unread_rows_ = 0;
  bool cards_left_out_ = false;
};

}  // namespace

CardTable ReadCardTable(const TextLines& text, std::span<const Title> known, std::string_view tool) {
  Assembler assembler(known, tool);
  for (const std::string_view line : text.lines) assembler.Line(line);
  return assembler.Take();
}

std::string NoTableNote(const TextLines& text, std::string_view tool) {
  for (const std::string_view line : text.lines) {
    if (base::Trim(line).empty() || IsRuling(line)) continue;
    return std::string(tool) + " printed no card table; it began: " + Quoted(line);
  }
  return std::string(tool) + " printed nothing.";
}

void KeepIdentifiedCards(SourceReading& reading, std::string_view tool) {
  std::set<int> seen;
  for (CardReading& card : reading.cards) {
    if (!card.index || seen.insert(*card.index).second) continue;
    card.notes.push_back(std::string(tool) + " gives the number " + std::to_string(*card.index) +
                         " to more than one card; it is left to the first.");
    card.index.reset();
  }
  const std::size_t nameless =
      std::erase_if(reading.cards, [](const CardReading& card) { return !card.index && !card.pci_address; });
  if (nameless > 0) {
    reading.notes.push_back(std::string(tool) + ": the values of " + std::to_string(nameless) +
                            (nameless == 1 ? " card" : " cards") + " were left out: no number or address says whose.");
  }
}

}  // namespace fulldeck::device
