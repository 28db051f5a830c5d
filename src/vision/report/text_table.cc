#include "report/text_table.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"

namespace fulldeck::report {

TextTable::TextTable(std::vector<std::string> titles) {
  rows_.push_back(std::move(titles));
}

void TextTable::AddRow(std::vector<std::string> cells) {
  CHECK(cells.size() == rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::Text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - DisplayWidth(row[i]), ' ');
      if (i > 0) line += "  ";
      line += i == 0 ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::size_t DisplayWidth(const std::string& text) {
  std::string_view rest = text;
  std::size_t columns = 0;
  while (!rest.empty()) {
    const base::CodePoint first = base::FirstCodePoint(rest);
    columns += base::ColumnsOf(first);
    rest.remove_prefix(first.bytes);
  }
  return columns;
}

}  // namespace fulldeck::report
