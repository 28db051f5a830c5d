#include "device/text/text_scan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"

namespace fulldeck::device {
namespace {

constexpr double kMaxCelsius = 250;
constexpr double kMaxWatts = 100'000;
constexpr double kMaxBytes = 1125899906842624.0;  // 1 PiB
constexpr std::size_t kMaxQuotedCharacters = 80;

bool IsBlank(char c) {
  return c == ' ' || c == '\t';
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The number at the front of `text`, and the text after it.
struct Quantity {
  double value = 0;
  std::string_view unit;
};

std::optional<Quantity> ReadQuantity(std::string_view text) {
  text = base::Trim(text);
  std::size_t end = 0;
  while (end < text.size() && (IsDigit(text[end]) || text[end] == '.')) ++end;
  const std::optional<double> value = base::ParseDecimal(text.substr(0, end));
  if (!value) return std::nullopt;
  return Quantity{*value, base::Trim(text.substr(end))};
}

std::optional<double> Within(const std::optional<Quantity>& quantity, double max) {
  if (!quantity || quantity->value > max) return std::nullopt;
  return quantity->value;
}

// A tool that converts "℃" to a locale without it prints a question mark.
bool IsCelsius(std::string_view unit) {
  return unit == "C" || unit == "c" || unit == "℃" || unit == "°C" || unit == "?" || unit == "?C";
}

std::optional<double> BytesPerUnit(std::string_view unit) {
  struct Row {
    std::string_view unit;
    double bytes;
  };
  static constexpr std::array<Row, 10> kRows = {{{"B", 1},
                                                 {"KiB", 1024.0},
                                                 {"M", 1048576.0},
                                                 {"MB", 1048576.0},
                                                 {"MiB", 1048576.0},
                                                 {"G", 1073741824.0},
                                                 {"GB", 1073741824.0},
                                                 {"GiB", 1073741824.0},
                                                 {"TiB", 1099511627776.0},
                                                 {"TB", 1099511627776.0}}};
  for (const Row& row : kRows) {
    if (EqualIgnoringCase(row.unit, unit)) return row.bytes;
  }
  return std::nullopt;
}

}  // namespace

TextLines SplitLines(std::string_view text, std::string_view tool) {
  TextLines out;
  const std::string name(tool);
  if (text.size() > kMaxTextBytes) {
    text = text.substr(0, kMaxTextBytes);
    out.notes.push_back(name + " printed more than 1 MiB; the rest was left out.");
  }
  std::size_t too_long = 0;
  while (!text.empty()) {
    if (out.lines.size() == kMaxTextLines) {
      out.notes.push_back(name + " printed more than " + std::to_string(kMaxTextLines) +
                          " lines; the rest was left out.");
      break;
    }
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    out.last_line_ended = end != std::string_view::npos;
    text.remove_prefix(out.last_line_ended ? end + 1 : text.size());
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.size() > kMaxLineBytes) {
      ++too_long;
      line = {};  // it still separates the rows above from those below
    }
    out.lines.push_back(line);
  }
  if (too_long > 0) {
    out.notes.push_back(name + " printed " + std::to_string(too_long) + " line" + (too_long == 1 ? "" : "s") +
                        " of more than " + std::to_string(kMaxLineBytes) + " bytes, left out.");
  }
  return out;
}

bool IsRuling(std::string_view line) {
  line = base::Trim(line);
  std::size_t strokes = 0;
  for (const char c : line) {
    if (c == '-' || c == '=') {
      ++strokes;
    } else if (c != '+' && c != '|' && c != '*' && !IsBlank(c)) {
      return false;
    }
  }
  return strokes >= 3;
}

std::optional<BoxedRow> ReadBoxedRow(std::string_view line) {
  line = base::Trim(line);
  if (line.empty() || (line.front() != '|' && line.front() != '*') || IsRuling(line)) return std::nullopt;
  const char border = line.front();
  line.remove_prefix(1);
  BoxedRow row;
  row.closed = !line.empty() && line.back() == border;
  if (row.closed) line.remove_suffix(1);
  while (true) {
    const std::size_t end = line.find('|');
    if (end == std::string_view::npos) break;
    row.cells.push_back(base::Trim(line.substr(0, end)));
    line.remove_prefix(end + 1);
  }
  if (row.closed) row.cells.push_back(base::Trim(line));
  return row;
}

std::string_view TakeWord(std::string_view& rest) {
  while (!rest.empty() && IsBlank(rest.front())) rest.remove_prefix(1);
  std::size_t end = 0;
  while (end < rest.size() && !IsBlank(rest[end])) ++end;
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::string_view word = TakeWord(text); !word.empty(); word = TakeWord(text)) words.push_back(word);
  return words;
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}

bool ContainsIgnoringCase(std::string_view text, std::string_view part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char x, char y) { return Lower(x) == Lower(y); }) != text.end();
}

bool IsAbsentMark(std::string_view text) {
  text = base::Trim(text);
  return text.empty() || text == "-" || text == "--" || EqualIgnoringCase(text, "N/A") || EqualIgnoringCase(text, "NA");
}

std::optional<std::int64_t> Whole(std::string_view text, std::int64_t max) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (!IsDigit(c)) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  if (value > max) return std::nullopt;
  return value;
}

std::optional<double> Celsius(std::string_view text) {
  const std::optional<Quantity> quantity = ReadQuantity(text);
  if (!quantity || !(quantity->unit.empty() || IsCelsius(quantity->unit))) return std::nullopt;
  return Within(quantity, kMaxCelsius);
}

std::optional<double> Watts(std::string_view text) {
  const std::optional<Quantity> quantity = ReadQuantity(text);
  if (!quantity || !(quantity->unit.empty() || quantity->unit == "W")) return std::nullopt;
  return Within(quantity, kMaxWatts);
}

std::optional<double> Percent(std::string_view text) {
  const std::optional<Quantity> quantity = ReadQuantity(text);
  if (!quantity || !(quantity->unit.empty() || quantity->unit == "%")) return std::nullopt;
  return Within(quantity, 100);
}

std::optional<std::uint64_t> Bytes(std::string_view text, std::string_view bare_unit) {
  const std::optional<Quantity> quantity = ReadQuantity(text);
  if (!quantity) return std::nullopt;
  const std::optional<double> unit = BytesPerUnit(quantity->unit.empty() ? bare_unit : quantity->unit);
  if (!unit || quantity->value * *unit > kMaxBytes) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(quantity->value * *unit));
}

bool IsUnit(std::string_view word) {
  return IsCelsius(word) || word == "W" || word == "%" || BytesPerUnit(word).has_value();
}

std::optional<std::string> PlainText(std::string_view text) {
  text = base::Trim(text);
  if (IsAbsentMark(text) || text.size() > kMaxValueBytes) return std::nullopt;
  for (std::string_view rest = text; !rest.empty();) {
    const base::CodePoint c = base::FirstCodePoint(rest);
    if (!base::IsPrintable(c)) return std::nullopt;
    rest.remove_prefix(c.bytes);
  }
  return std::string(text);
}

std::optional<std::string> Version(std::string_view text) {
  if (!text.empty() && (text.front() == 'V' || text.front() == 'v')) text.remove_prefix(1);
  if (text.empty() || text.size() > 48 || !IsDigit(text.front())) return std::nullopt;
  for (const char c : text) {
    if (!IsDigit(c) && !IsLetter(c) && c != '.' && c != '-' && c != '_' && c != '+') return std::nullopt;
  }
  return std::string(text);
}

std::string Quoted(std::string_view text) {
  text = base::Trim(text);
  std::string out = "\"";
  std::size_t characters = 0;
  while (!text.empty() && characters < kMaxQuotedCharacters) {
    const base::CodePoint c = base::FirstCodePoint(text);
    if (base::IsPrintable(c)) {
      out += text.substr(0, c.bytes);
    } else {
      out += '?';
    }
    text.remove_prefix(c.bytes);
    ++characters;
  }
  return out + (text.empty() ? "\"" : "…\"");
}

}  // namespace fulldeck::device
