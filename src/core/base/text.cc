#include "base/text.h"

#include <algorithm>
#include <cstdio>

#include "base/utf8.h"

namespace fulldeck::base {
namespace {

// Number of insertions, deletions, replacements and swaps of neighboring letters.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (const std::string& part : parts) {
    if (!joined.empty()) joined += separator;
    joined += part;
  }
  return joined;
}

std::optional<double> ParseDecimal(std::string_view text) {
  // Hand-written: from_chars for double is missing from some C++ libraries, and strtod depends on the locale.
  constexpr int kMaxDigits = 15;  // all of them exact in a double
  std::int64_t digits_value = 0;
  int digits = 0;
  int after_point = -1;
  for (const char c : text) {
    if (c == '.') {
      if (after_point >= 0 || digits == 0) return std::nullopt;
      after_point = 0;
      continue;
    }
    if (c < '0' || c > '9' || ++digits > kMaxDigits) return std::nullopt;
    digits_value = digits_value * 10 + (c - '0');
    if (after_point >= 0) ++after_point;
  }
  if (digits == 0 || after_point == 0) return std::nullopt;
  double scale = 1;
  for (int i = 0; i < after_point; ++i) scale *= 10;
  return static_cast<double>(digits_value) / scale;
}

std::optional<std::uint64_t> ParseByteSize(std::string_view text) {
  const auto unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = ParseDecimal(text.substr(0, unit_at));
  if (!number) return std::nullopt;
  const std::string_view unit = text.substr(unit_at);
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  constexpr std::string_view kPrefixes = "KMGT";
  for (std::size_t i = 0; i < kPrefixes.size(); ++i) {
    const std::string prefix(1, kPrefixes[i]);
    if (unit == prefix || unit == prefix + "iB" || unit == prefix + "i") shift = 10 * static_cast<int>(i + 1);
  }
  if (shift < 0) return std::nullopt;
  const double bytes = *number * static_cast<double>(std::uint64_t{1} << shift);
  if (bytes >= 9.2e18) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::string FormatByteSize(std::uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const bool whole = unit == 0 || value >= 100 || value == static_cast<double>(static_cast<std::uint64_t>(value));
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string Counted(std::uint64_t count, std::string_view thing) {
  const char* plural = count == 1 ? "" : thing.ends_with("s") || thing.ends_with("tch") ? "es" : "s";
  return std::to_string(count).append(" ").append(thing).append(plural);
}

std::string FormatRanges(const std::vector<int>& numbers, int first) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (i > 0) text += ", ";
    text += std::to_string(first + numbers[i]);
    if (end > i) text += (end == i + 1 ? ", " : "–") + std::to_string(first + numbers[end]);
    i = end + 1;
  }
  return text;
}

std::string FormatRanks(const std::vector<int>& ranks, int first_rank) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + FormatRanges(ranks, first_rank);
}

std::string FormatThousands(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::optional<std::string> ClosestMatch(std::string_view word, const std::vector<std::string>& candidates) {
  // Up to a third of the word may be wrong: "devcies" is close to "devices", "foo" is close to nothing. A word longer
  // than any fulldeck name is not a typo.
  if (word.size() > 64) return std::nullopt;
  std::size_t best_distance = std::max<std::size_t>(1, (word.size() + 1) / 3) + 1;
  std::optional<std::string> best;
  for (const std::string& candidate : candidates) {
    const bool is_start = word.size() >= 3 && candidate.compare(0, word.size(), word) == 0;
    const std::size_t distance = is_start ? 1 : EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string Printable(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const CodePoint character = FirstCodePoint(text);
    clean += IsPrintable(character) ? text.substr(0, character.bytes) : std::string_view("?");
    text.remove_prefix(character.bytes);
  }
  return clean;
}

}  // namespace fulldeck::base
