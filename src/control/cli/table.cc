#include "cli/table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "base/utf8.h"
#include "wire/variables.h"

namespace fulldeck::cli {
namespace {

const char* Escape(Colour colour) {
  switch (colour) {
    case Colour::kNone:
      return "";
    case Colour::kBold:
      return "\x1b[1m";
    case Colour::kDim:
      return "\x1b[2m";
    case Colour::kRed:
      return "\x1b[31m";
    case Colour::kGreen:
      return "\x1b[32m";
    case Colour::kYellow:
      return "\x1b[33m";
  }
  return "";
}

std::string Paint(const std::string& text, Colour colour, bool colours) {
  if (!colours || colour == Colour::kNone || text.empty()) return text;
  return Escape(colour) + text + "\x1b[0m";
}

}  // namespace

void Table::AddColumn(std::string title, Align align) {
  columns_.push_back({std::move(title), align});
}

void Table::AddRow(std::vector<Cell> cells) {
  CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render(bool colours) const {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> widths(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    widths[c] = DisplayWidth(columns_[c].title);
    bool told = rows_.empty();
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], DisplayWidth(row[c].text));
      told = told || row[c].text != kAbsent;
    }
    if (told) shown.push_back(c);
  }
  std::string text;
  const auto add_line = [&](const std::vector<Cell>& cells) {
    std::string line;
    std::string gap;
    for (const std::size_t c : shown) {
      const std::string padding(widths[c] - DisplayWidth(cells[c].text), ' ');
      const std::string painted = Paint(cells[c].text, cells[c].colour, colours);
      line += gap;
      line += columns_[c].align == Align::kRight ? padding + painted : painted;
      gap = (columns_[c].align == Align::kRight ? "" : padding) + "  ";
    }
    text += line + "\n";
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back({column.title, Colour::kBold});
  add_line(titles);
  for (const auto& row : rows_) add_line(row);
  return text;
}

std::size_t DisplayWidth(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const base::CodePoint character = base::FirstCodePoint(text);
    width += base::ColumnsOf(character);
    text.remove_prefix(character.bytes);
  }
  return width;
}

bool StdoutWantsColour() {
  const char* no_colour = std::getenv(wire::kNoColorVariable);
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace fulldeck::cli
