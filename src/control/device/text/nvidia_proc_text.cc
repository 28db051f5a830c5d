#include "device/text/nvidia_proc_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "device/pci_address.h"
#include "device/text/text_scan.h"

namespace fulldeck::device {
namespace {

constexpr std::string_view kFile = "The driver's information file";

// Only digits and periods, with at least one period: "470.57.02", and neither "x86_64" nor "12:15:00".
bool IsDriverVersion(std::string_view word) {
  bool point = false;
  for (const char c : word) {
    if (c != '.' && (c < '0' || c > '9')) return false;
    point |= c == '.';
  }
  return point && word.front() != '.' && word.back() != '.';
}

std::optional<std::string> KnownText(std::string_view text) {
  if (text.find('?') != std::string_view::npos) return std::nullopt;
  return PlainText(text);
}

// Returns false if the value is present but invalid.
bool Store(std::string_view key, std::string_view value, CardReading& card) {
  if (IsAbsentMark(value) || value.find('?') != std::string_view::npos) return true;
  if (key == "Model") return (card.model = KnownText(value)).has_value();
  if (key == "GPU UUID") return (card.uuid = KnownText(value)).has_value();
  if (key == "Video BIOS") return (card.firmware = KnownText(value)).has_value();
  if (key == "Bus Location") return (card.pci_address = NormalPciAddress(value)).has_value();
  if (key == "Device Minor") {
    const std::optional<std::int64_t> minor = Whole(value, 65535);
    if (minor) card.index = static_cast<int>(*minor);
    return minor.has_value();
  }
  if (key == "GPU Excluded" || key == "Blacklisted") {
    if (EqualIgnoringCase(value, "Yes")) {
      card.notes.emplace_back("The NVIDIA driver is set to leave this card alone (excluded); programs cannot use it.");
    }
  }
  return true;
}

}  // namespace

std::optional<std::string> ParseNvidiaVersion(std::string_view text) {
  constexpr std::string_view kKey = "NVRM version:";
  const TextLines lines = SplitLines(text, "nvidia");
  for (const std::string_view line : lines.lines) {
    if (line.substr(0, kKey.size()) != kKey) continue;
    for (const std::string_view word : Words(line.substr(kKey.size()))) {
      if (IsDriverVersion(word)) return Version(word);
    }
  }
  return std::nullopt;
}

CardReading ParseNvidiaInformation(std::string_view text) {
  constexpr std::array<std::string_view, 7> kKeys = {"Model",        "Bus Location", "Video BIOS", "GPU UUID",
                                                     "Device Minor", "GPU Excluded", "Blacklisted"};
  constexpr std::size_t kAlwaysPrinted = 3;  // the first of kKeys; printed by every module
  std::array<bool, kKeys.size()> seen{};
  CardReading card;
  const TextLines lines = SplitLines(text, kFile);
  card.notes = lines.notes;
  std::string unreadable;
  for (std::size_t i = 0; i < lines.lines.size(); ++i) {
    const std::string_view line = lines.lines[i];
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (i + 1 == lines.lines.size() && !lines.last_line_ended) {
      card.notes.push_back(std::string(kFile) + " is cut off in its last line.");
      continue;
    }
    const auto key = std::find(kKeys.begin(), kKeys.end(), base::Trim(line.substr(0, colon)));
    if (key == kKeys.end() || std::exchange(seen[static_cast<std::size_t>(key - kKeys.begin())], true)) continue;
    if (Store(*key, base::Trim(line.substr(colon + 1)), card)) continue;
    if (!unreadable.empty()) unreadable += ", ";
    unreadable += *key;
  }
  if (!unreadable.empty()) card.notes.push_back(std::string(kFile) + ": could not read " + unreadable + ".");
  if (std::none_of(seen.begin(), seen.end(), [](bool value) { return value; })) {
    card.notes.push_back(std::string(kFile) + " does not say what card this is.");
    return card;
  }
  for (std::size_t i = 0; i < kAlwaysPrinted; ++i) {
    if (!seen[i]) card.notes.push_back(std::string(kFile) + " has no line \"" + std::string(kKeys[i]) + "\".");
  }
  return card;
}

}  // namespace fulldeck::device
