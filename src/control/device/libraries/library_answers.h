// Judges what a vendor's library answered before anyone believes it: texts without an end, numbers that cannot be,
// return codes. What fails is absent and leaves a note, so that a broken library never puts a wrong figure into a
// table. Not about one vendor: units and layouts belong to the readers.
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

// More cards than any host has: beyond it a count is nonsense, and walking it would take for ever.
inline constexpr std::uint64_t kMaxCardsPerHost = 256;

// Give libraries this much zeroed room for a text, whatever they promise to write, so that one without an end is found
// by looking and not by a crash.
inline constexpr std::size_t kTextRoom = 4096;

// Checks for one card, or for the library as a whole. `library` is its name in the notes ("NVML") and must outlive
// this; `notes` is where they go. Thread rule: none, use it where the notes live.
class AnswerCheck {
 public:
  AnswerCheck(const char* library, std::vector<std::string>* notes) : library_(library), notes_(notes) {}

  // `size` is how long the interface says the text can be, its end included. Absent with a note: no end, or bytes that
  // are not printable ASCII. Absent without one: empty, or "N/A".
  std::optional<std::string> Text(std::string_view what, const char* buffer, std::size_t size) const;

  std::optional<double> UtilizationPercent(double value) const;  // 0 to 100
  std::optional<double> TemperatureCelsius(double value) const;  // -60 to 200
  std::optional<double> PowerWatts(double value) const;          // 0 to 5000
  std::optional<double> PowerLimitWatts(double value) const;     // as above; 0 means that it is not known
  std::optional<std::string> PciAddress(std::uint64_t domain, std::uint64_t bus, std::uint64_t device,
                                        std::uint64_t function) const;
  std::optional<int> ProcessId(std::int64_t value) const;  // 1 to the kernel's largest, 2^22
  bool CardCount(std::uint64_t count) const;               // at most kMaxCardsPerHost

  // Fills both memory figures; a total of 0 means that the library does not know. More used than there is: the used
  // figure is absent.
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

// "the driver is not loaded (code 9)". For a code that is not in the table: "code 77, which it calls 'no coffee'" where
// the library has a text for it, else "code 77, whose meaning is not known".
std::string DescribeCode(std::span<const CodeMeaning> meanings, int code, const char* text_of_library = nullptr);

// The error for a library that lacks a function without which nothing can be read.
base::Error MissingFunction(const std::string& library_path, std::string_view function);

}  // namespace fulldeck::device
