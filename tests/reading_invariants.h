// Invariants of every reading, whatever text it was parsed from. Used by the fuzzers and by the tests with hostile
// text.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/card_reading.h"
#include "device/pci_address.h"

namespace fulldeck::testing {

// Terminals interpret control characters, or the data is not text.
inline bool HasControlCharacter(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return true;
    // U+0080 to U+009f are control characters too: c2 80 to c2 9f in UTF-8.
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

inline bool IsOutside(const std::optional<double>& value, double low, double high) {
  return value && !(*value >= low && *value <= high);  // NaN is outside
}

// What is wrong with the card; empty if nothing is.
inline std::string BrokenInvariant(const device::CardReading& card) {
  if (card.index && *card.index < 0) return "negative index";
  if (IsOutside(card.utilization_percent, 0, 100)) return "utilisation outside 0..100 %";
  if (IsOutside(card.memory_used_percent, 0, 100)) return "used memory outside 0..100 %";
  if (IsOutside(card.power_watts, 0, 1e5)) return "power is not plausible";
  if (IsOutside(card.power_limit_watts, 0, 1e5)) return "power limit is not plausible";
  if (IsOutside(card.temperature_celsius, 0, 250)) return "temperature is not plausible";
  if (card.memory_total_bytes && *card.memory_total_bytes > (1ULL << 50)) return "memory is not plausible";
  if (card.memory_used_bytes && card.memory_total_bytes && *card.memory_used_bytes > *card.memory_total_bytes) {
    return "more memory used than there is";
  }
  for (const auto* text : {&card.model, &card.serial, &card.uuid, &card.pci_address, &card.firmware, &card.state}) {
    if (!*text) continue;
    if ((*text)->empty()) return "empty text instead of an absent one";
    if (HasControlCharacter(**text)) return "control character in a value";
    if ((*text)->size() > 128) return "value of unlimited length";
  }
  if (card.pci_address && device::NormalPciAddress(*card.pci_address) != card.pci_address)
    return "PCI address not normal";
  if (card.processes) {
    for (const device::ProcessOnCard& process : *card.processes) {
      if (process.pid <= 0) return "process without a number";
    }
  }
  for (const std::string& note : card.notes) {
    if (note.empty() || HasControlCharacter(note)) return "empty note or control character in a note";
  }
  return "";
}

inline std::string BrokenInvariant(const device::SourceReading& reading) {
  if (HasControlCharacter(reading.source)) return "control character in the source";
  if (reading.driver_version && (reading.driver_version->empty() || HasControlCharacter(*reading.driver_version))) {
    return "bad driver version";
  }
  if (reading.cards.size() > 256) return "more than 256 cards";
  if (reading.cards.empty() && reading.notes.empty()) return "no card and no word why";
  for (const std::string& note : reading.notes) {
    if (note.empty() || HasControlCharacter(note)) return "empty note or control character in a note";
  }
  std::set<int> indices;
  for (const device::CardReading& card : reading.cards) {
    if (const std::string broken = BrokenInvariant(card); !broken.empty()) return broken;
    if (!card.index && !card.pci_address) return "a card that nothing identifies";
    if (card.index && !indices.insert(*card.index).second) return "two cards with one index";
  }
  return "";
}

// A damaged text may yield fewer values than the whole one, but no different values. Returns the difference, or empty.
inline std::string ContradictionOf(const device::SourceReading& whole, const device::SourceReading& damaged) {
  const auto differs = [](const auto& part, const auto& all) { return part && part != all; };
  for (const device::CardReading& card : damaged.cards) {
    const device::CardReading* right = nullptr;
    for (const device::CardReading& candidate : whole.cards) {
      const bool same = card.pci_address ? candidate.pci_address == card.pci_address : candidate.index == card.index;
      if (same) right = &candidate;
    }
    const std::string name = card.pci_address.value_or("card " + std::to_string(card.index.value_or(-1)));
    if (right == nullptr) return name + " is no card of the whole text";
    if (differs(card.index, right->index)) return name + ": other index";
    if (differs(card.model, right->model)) return name + ": other model";
    if (differs(card.serial, right->serial)) return name + ": other serial";
    if (differs(card.firmware, right->firmware)) return name + ": other firmware";
    if (differs(card.state, right->state)) return name + ": other state";
    if (differs(card.power_watts, right->power_watts)) return name + ": other power";
    if (differs(card.temperature_celsius, right->temperature_celsius)) return name + ": other temperature";
    if (differs(card.utilization_percent, right->utilization_percent)) return name + ": other utilisation";
    if (differs(card.memory_total_bytes, right->memory_total_bytes)) return name + ": other memory";
    if (differs(card.memory_used_bytes, right->memory_used_bytes)) return name + ": other used memory";
    if (!card.processes) continue;
    if (card.processes->empty() && right->processes && !right->processes->empty()) return name + ": looks unused";
    for (const device::ProcessOnCard& process : *card.processes) {
      bool found = false;
      for (const device::ProcessOnCard& known : right->processes.value_or(std::vector<device::ProcessOnCard>{})) {
        found |= known.pid == process.pid && (!process.memory_bytes || known.memory_bytes == process.memory_bytes);
      }
      if (!found) return name + ": process of another card";
    }
  }
  return "";
}

// `text` without its lines `first` and `second`, counted from 0.
inline std::string WithoutLines(std::string_view text, int first, int second) {
  std::string out;
  for (int line = 0; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::size_t length = end == std::string_view::npos ? text.size() : end + 1;
    if (line != first && line != second) out += text.substr(0, length);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace fulldeck::testing
