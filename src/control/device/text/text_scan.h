// Shared functions for reading the output of a vendor's tool: lines, boxed rows, words, numbers with units, and text
// that is safe to show. Not a table reader: titled_row.h knows titles, card_table.h combines rows into cards.
//
// Nothing here trusts the text. It is cut at fixed limits, and notes report what was cut. A number that is negative,
// too large or malformed is absent, never zero. A value with invalid UTF-8, a control character or an escape sequence
// is rejected, so that it never reaches a terminal. No locale, no exceptions; all views point into the text that was
// passed in. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::device {

inline constexpr std::size_t kMaxTextBytes = 1 << 20;
inline constexpr std::size_t kMaxTextLines = 4096;
inline constexpr std::size_t kMaxLineBytes = 2048;
inline constexpr std::size_t kMaxValueBytes = 96;
inline constexpr std::size_t kMaxCards = 256;

struct TextLines {
  std::vector<std::string_view> lines;  // without "\n" or "\r\n"
  std::vector<std::string> notes;       // what was skipped, in sentences that begin with `tool`
  bool last_line_ended = true;          // false: the text stops without a line ending, perhaps in mid-line
};
TextLines SplitLines(std::string_view text, std::string_view tool);

// One line of a boxed table: the cells between `|`; the outermost border is `|` or `*`.
struct BoxedRow {
  std::vector<std::string_view> cells;  // without surrounding blanks; a truncated cell is not included
  bool closed = true;                   // false: the line ends before its closing border
};
// nullopt if the line does not start with a border, or is only a ruling.
std::optional<BoxedRow> ReadBoxedRow(std::string_view line);
// A line that only draws: "+----+", "|====|", "*-----*".
bool IsRuling(std::string_view line);

// Takes the first word off `rest`; empty if there is none.
std::string_view TakeWord(std::string_view& rest);
std::vector<std::string_view> Words(std::string_view text);
// ASCII letters only.
bool EqualIgnoringCase(std::string_view a, std::string_view b);
bool ContainsIgnoringCase(std::string_view text, std::string_view part);

// "", "-", "--", "N/A", "NA": the tool reports that the value is unknown. Different from an unreadable value.
bool IsAbsentMark(std::string_view text);

// Digits only, not above `max`.
std::optional<std::int64_t> Whole(std::string_view text, std::int64_t max);

// "30C", "39 C", "34℃", "35", and "34?" if the degree sign was lost: up to 250.
std::optional<double> Celsius(std::string_view text);
// "48.0W", "105W", "91.3": up to 100 kW.
std::optional<double> Watts(std::string_view text);
// "0.0%", "84.1": up to 100.
std::optional<double> Percent(std::string_view text);
// "32G", "49120MiB"; a bare number is in `bare_unit` ("MiB"). M, MB and MiB all mean 1024 KiB, as the tools use them;
// up to 1 PiB.
std::optional<std::uint64_t> Bytes(std::string_view text, std::string_view bare_unit);
// C, ℃, °C, W, %, and the units of Bytes().
bool IsUnit(std::string_view word);

// A name, serial or version that is safe to show: valid UTF-8, 1 to kMaxValueBytes bytes, no control, formatting or
// direction-changing characters, not an absent mark.
std::optional<std::string> PlainText(std::string_view text);
// "1.20.0" from "V1.20.0" or "1.20.0": digits, letters, periods, '-', '_' and '+', starting with a digit.
std::optional<std::string> Version(std::string_view text);
// Any text, sanitized for a message: in double quotes, invalid bytes as '?', cut after 80 characters.
std::string Quoted(std::string_view text);

}  // namespace fulldeck::device
