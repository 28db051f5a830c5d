// Validates what a vendor's library returns before it is used: unterminated strings, invalid numbers, return codes. A
// value that fails is absent and leaves a note, so that a broken library never puts a wrong value into a table.
// Vendor-neutral: units and layouts belong to the readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/card_reading.h"

namespace fulldeck::device {

// More cards than any machine has: a larger count is invalid, and iterating over it would take forever.
inline constexpr std::uint64_t kMaxCardsPerHost = 256;

// Give libraries this much zeroed memory for a string, whatever they promise to write, so that an unterminated string
// is found by a check and not by a crash.
inline constexpr std::size_t kTextRoom = 4096;

// Checks for one card, or for the library as a whole. `library` is its name in the notes ("NVML") and must outlive
// this object; notes are added to `notes`. Thread rule: none, use it on the thread that owns the notes.
class AnswerCheck {
 public:
  AnswerCheck(const char* library, std::vector<std::string>* notes) : library_(library), notes_(notes) {}

  // `size` is the maximum length of the string according to the interface, including its terminator. Absent with a
  // note: no terminator, or bytes that are not printable ASCII. Absent without a note: empty, or "N/A".
  std::optional<std::string> Text(std::string_view what, const char* buffer, std::size_t size) const;

  std::optional<double> UtilizationPercent(double value) const;  // 0 to 100
  std::optional<double> TemperatureCelsius(double value) const;  // -60 to 200
  std::optional<double> PowerWatts(double value) const;          // 0 to 5000
  std::optional<double> PowerLimitWatts(double value) const;     // as above; 0: unknown
  std::optional<std::string> PciAddress(std::uint64_t domain, std::uint64_t bus, std::uint64_t device,
                                        std::uint64_t function) const;
  std::optional<int> ProcessId(std::int64_t value) const;  // 1 to the kernel's maximum, 2^22
  bool CardCount(std::uint64_t count) const;               // at most kMaxCardsPerHost

  // Sets both memory values; a total of 0 means that it is unknown. If more is used than the total, the used value is
  // absent.
  void Memory(std::uint64_t total_bytes, std::uint64_t used_bytes, CardReading* card) const;

  // Adds "<library> <sentence>" once.
  void Note(const std::string& sentence) const;

 private:
  const char* library_;
  std::vector<std::string>* notes_;
};

struct CodeMeaning {
  int code;
  const char* words;
};

// "the driver is not loaded (code 9)". For a code that is not in the table: "code 77, which it calls 'no coffee'" if
// the library has a text for it, otherwise "code 77, whose meaning is not known".
std::string DescribeCode(std::span<const CodeMeaning> meanings, int code, const char* text_of_library = nullptr);

// The error for a library that lacks a required function.
base::Error MissingFunction(const std::string& library_path, std::string_view function);

}  // namespace fulldeck::device
