// A plain text table for people: columns as wide as their widest cell, right numbers, color only where asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::cli {

enum class Align { kLeft, kRight };

enum class Color { kNone, kBold, kDim, kRed, kGreen, kYellow };

struct Cell {
  std::string text;
  Color color = Color::kNone;
};

class Table {
 public:
  void AddColumn(std::string title, Align align);
  // As many cells as columns.
  void AddRow(std::vector<Cell> cells);

  // Every line ends in a newline; no space at the end of a line. A column whose cells are all "–" is left out.
  std::string Render(bool colors) const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// What stands for a value that is not known.
inline constexpr char kAbsent[] = "–";

// Columns that the text takes on a terminal: Chinese characters take two.
std::size_t DisplayWidth(std::string_view text);

// Whether stdout is a terminal that wants color: a real one, NO_COLOR not set, TERM not dumb.
bool StdoutWantsColor();

}  // namespace fulldeck::cli
