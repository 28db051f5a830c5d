// A plain text table: columns as wide as their widest cell, numbers aligned right, color only if requested.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fulldeck::base {

enum class Align { kLeft, kRight };

enum class Color { kNone, kBold, kDim, kRed, kGreen, kYellow };

struct Cell {
  Cell(std::string text_of_cell, Color color_of_cell = Color::kNone)
      : text(std::move(text_of_cell)), color(color_of_cell) {}

  std::string text;
  Color color;
};

class TextTable {
 public:
  TextTable() = default;
  // The first column to the left, the others, numbers, to the right.
  explicit TextTable(const std::vector<std::string>& titles);

  void AddColumn(std::string title, Align align);
  // As many cells as columns.
  void AddRow(std::vector<Cell> cells);

  // Every line ends in a newline, without trailing spaces. A column whose cells are all "–" is omitted.
  std::string Render(bool colors = false) const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// The cell for an unknown value.
inline constexpr char kAbsent[] = "–";

// The width of the text on a terminal: Chinese characters take two columns.
std::size_t DisplayWidth(std::string_view text);

}  // namespace fulldeck::base
