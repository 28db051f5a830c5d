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

const char* Escape(Color color) {
  switch (color) {
    case Color::kNone:
      return "";
    case Color::kBold:
      return "\x1b[1m";
    case Color::kDim:
      return "\x1b[2m";
    case Color::kRed:
      return "\x1b[31m";
    case Color::kGreen:
      return "\x1b[32m";
    case Color::kYellow:
      return "\x1b[33m";
  }
  return "";
}

std::string Paint(const std::string& text, Color color, bool colors) {
  if (!colors || color == Color::kNone || text.empty()) return text;
  return Escape(color) + text + "\x1b[0m";
}

}  // namespace

void Table::AddColumn(std::string title, Align align) {
  columns_.push_back({std::move(title), align});
}

void Table::AddRow(std::vector<Cell> cells) {
  CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render(bool colors) const {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> widths(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    widths[c] = DisplayWidth(columns_[c].title);
    bool has_value = rows_.empty();
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], DisplayWidth(row[c].text));
      has_value = has_value || row[c].text != kAbsent;
    }
    if (has_value) shown.push_back(c);
  }
  std::string text;
  const auto add_line = [&](const std::vector<Cell>& cells) {
    std::string line;
    std::string gap;
    for (const std::size_t c : shown) {
      const std::string padding(widths[c] - DisplayWidth(cells[c].text), ' ');
      const std::string painted = Paint(cells[c].text, cells[c].color, colors);
      line += gap;
      line += columns_[c].align == Align::kRight ? padding + painted : painted;
      gap = (columns_[c].align == Align::kRight ? "" : padding) + "  ";
    }
    text += line + "\n";
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back({column.title, Color::kBold});
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

bool StdoutWantsColor() {
  const char* no_color = std::getenv(wire::kNoColorVariable);
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace fulldeck::cli
