// String helpers for several layers. Parsing is strict: a number followed by anything else is not a number.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::base {

std::string_view Trim(std::string_view text);

// "a,,b" gives "a", "", "b"; an empty string gives one empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);

std::string Join(const std::vector<std::string>& parts, std::string_view separator);

template <typename Integer>
std::optional<Integer> ParseInteger(std::string_view text, int numeral_base = 10) {
  Integer value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, numeral_base);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

// A plain decimal such as "1.5". No sign, no exponent, no "inf", at most 15 digits.
std::optional<double> ParseDecimal(std::string_view text);

// "64MiB", "1.5GiB", "32G" (binary), "4096": bytes.
std::optional<std::uint64_t> ParseByteSize(std::string_view text);

// "48.0 GiB", "512 MiB", "17 B".
std::string FormatByteSize(std::uint64_t bytes);

// "1 card", "2 cards", "2 processes".
std::string Counted(std::uint64_t count, std::string_view thing);

// "0–2, 5": numbers in ascending order, with `first` added to each.
std::string FormatRanges(const std::vector<int>& numbers, int first = 0);
// "rank 3", "ranks 0–2, 5".
std::string FormatRanks(const std::vector<int>& ranks, int first_rank = 0);

// "303,129,600"
std::string FormatThousands(std::int64_t number);

// The candidate that `word` is probably a typo of; nullopt if none is close.
std::optional<std::string> ClosestMatch(std::string_view word, const std::vector<std::string>& candidates);

// Replaces everything that could control a terminal: control characters and invalid UTF-8 become '?'.
std::string Printable(std::string_view text);

}  // namespace fulldeck::base
