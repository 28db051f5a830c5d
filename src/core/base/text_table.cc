#include "base/text_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"

namespace fulldeck::base {
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

TextTable::TextTable(const std::vector<std::string>& titles) {
  for (const std::string& title : titles) AddColumn(title, columns_.empty() ? Align::kLeft : Align::kRight);
}

void TextTable::AddColumn(std::string title, Align align) {
  columns_.push_back({std::move(title), align});
}

void TextTable::AddRow(std::vector<Cell> cells) {
  FULLDECK_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::Render(bool colors) const {
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
    const CodePoint character = FirstCodePoint(text);
    width += ColumnsOf(character);
    text.remove_prefix(character.bytes);
  }
  return width;
}

}  // namespace fulldeck::base
