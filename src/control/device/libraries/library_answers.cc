#include "device/libraries/library_answers.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "device/pci_address.h"

namespace fulldeck::device {
namespace {

// 64 TiB: no card comes near it; a larger value is a wrong unit or garbage.
constexpr std::uint64_t kMaxMemoryBytes = std::uint64_t{64} << 40;

constexpr double kMaxWatts = 5000;

constexpr std::size_t kTextSizeOfCodes = 256;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

bool IsPrintable(char character) {
  return character >= 0x20 && character < 0x7f;
}

}  // namespace

void AnswerCheck::Note(const std::string& sentence) const {
  std::string note = std::string(library_) + " " + sentence;
  if (std::find(notes_->begin(), notes_->end(), note) == notes_->end()) notes_->push_back(std::move(note));
}

std::optional<std::string> AnswerCheck::Text(std::string_view what, const char* buffer, std::size_t size) const {
  const char* end = std::find(buffer, buffer + size, '\0');
  if (end == buffer + size) {
    Note("gives a " + std::string(what) + " that has no end; it is left out.");
    return std::nullopt;
  }
  if (!std::all_of(buffer, end, IsPrintable)) {
    Note("gives a " + std::string(what) + " with unprintable characters; it is left out.");
    return std::nullopt;
  }
  const std::string_view text = base::Trim({buffer, static_cast<std::size_t>(end - buffer)});
  if (text.empty() || text == "N/A") return std::nullopt;
  return std::string(text);
}

// Each comparison is written so that a NaN fails it.
std::optional<double> AnswerCheck::UtilizationPercent(double value) const {
  if (value >= 0 && value <= 100) return value;
  Note("reports a utilisation of " + Number(value) + " %, which cannot be; it is left out.");
  return std::nullopt;
}

std::optional<double> AnswerCheck::TemperatureCelsius(double value) const {
  if (value >= -60 && value <= 200) return value;
  Note("reports a temperature of " + Number(value) + " degrees, which cannot be; it is left out.");
  return std::nullopt;
}

std::optional<double> AnswerCheck::PowerWatts(double value) const {
  if (value >= 0 && value <= kMaxWatts) return value;
  Note("reports a power of " + Number(value) + " W, which cannot be; it is left out.");
  return std::nullopt;
}

std::optional<double> AnswerCheck::PowerLimitWatts(double value) const {
  if (value == 0) return std::nullopt;
  if (value > 0 && value <= kMaxWatts) return value;
  Note("reports a power limit of " + Number(value) + " W, which cannot be; it is left out.");
  return std::nullopt;
}

std::optional<std::string> AnswerCheck::PciAddress(std::uint64_t domain, std::uint64_t bus, std::uint64_t device,
                                                   std::uint64_t function) const {
  std::optional<std::string> address;
  if (domain <= 0xffff && bus <= 0xff && device <= 0x1f && function <= 7) {
    char text[16];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", static_cast<unsigned>(domain & 0xffff),
                  static_cast<unsigned>(bus & 0xff), static_cast<unsigned>(device & 0x1f),
                  static_cast<unsigned>(function & 7));
    address = NormalPciAddress(text);
  }
  if (!address) Note("gives a PCI address that cannot be; it is left out.");
  return address;
}

std::optional<int> AnswerCheck::ProcessId(std::int64_t value) const {
  constexpr std::int64_t kLargestProcessId = std::int64_t{1} << 22;
  if (value > 0 && value <= kLargestProcessId) return static_cast<int>(value);
  Note("names a process " + std::to_string(value) + ", which cannot be; it is left out.");
  return std::nullopt;
}

bool AnswerCheck::CardCount(std::uint64_t count) const {
  if (count <= kMaxCardsPerHost) return true;
  Note("counts " + std::to_string(count) + " cards, which cannot be; none of them is shown.");
  return false;
}

void AnswerCheck::Memory(std::uint64_t total_bytes, std::uint64_t used_bytes, CardReading* card) const {
  if (total_bytes == 0) return;
  if (total_bytes > kMaxMemoryBytes) {
    Note("reports a memory of " + std::to_string(total_bytes) + " bytes, which cannot be; it is left out.");
    return;
  }
  card->memory_total_bytes = total_bytes;
  if (used_bytes > total_bytes) {
    Note("reports more memory in use (" + std::to_string(used_bytes) + " bytes) than there is (" +
         std::to_string(total_bytes) + " bytes); what is in use is left out.");
    return;
  }
  card->memory_used_bytes = used_bytes;
}

std::string DescribeCode(std::span<const CodeMeaning> meanings, int code, const char* text_of_library) {
  for (const CodeMeaning& meaning : meanings) {
    if (meaning.code == code) return std::string(meaning.words) + " (code " + std::to_string(code) + ")";
  }
  const std::string number = "code " + std::to_string(code);
  if (text_of_library != nullptr) {
    std::vector<std::string> ignored;
    const auto text = AnswerCheck("", &ignored).Text("", text_of_library, kTextSizeOfCodes);
    if (text) return number + ", which it calls '" + *text + "'";
  }
  return number + ", whose meaning is not known";
}

base::Error MissingFunction(const std::string& library_path, std::string_view function) {
  return base::Error{library_path + ": the function " + std::string(function) +
                     " is missing; this is another library of that name, a stub, or a version that is not supported"};
}

}  // namespace fulldeck::device
