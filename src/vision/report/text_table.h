// A plain table for people and logs: the first column to the left, the others, numbers, to the right.
#pragma once

#include <string>
#include <vector>

namespace fulldeck::report {

// What stands for a value that is not known.
inline constexpr char kAbsent[] = "–";

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> titles);
  // As many cells as titles.
  void AddRow(std::vector<std::string> cells);
  // Every line ends in a newline; no space at the end of a line.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Columns of a terminal that the text takes.
std::size_t DisplayWidth(const std::string& text);

}  // namespace fulldeck::report
