#include "diagnosis/known_failures/admissions.h"

#include <algorithm>
#include <string>
#include <vector>

#include "diagnosis/known_failures/admission_words.h"

namespace fulldeck::diagnosis {
namespace {

// Longer lines are dumps, not admissions.
constexpr std::size_t kLongestLine = 1024;

std::vector<const CatalogueEntry*> EntriesWithAdmissions() {
  std::vector<const CatalogueEntry*> entries;
  for (const CatalogueEntry& entry : Catalogue()) {
    if (!entry.admissions.empty()) entries.push_back(&entry);
  }
  return entries;
}

struct Reading {
  std::string_view id;
  bool (*admits)(std::string_view line);
};

constexpr Reading kReadings[] = {{"F2", ReplacesData}, {"F6", ValidatesOnTraining}, {"B6", TrainsOnCpu}};

}  // namespace

bool Holds(std::string_view line, const Signature& signature) {
  for (const std::string_view part : signature) {
    const auto at = line.find(part);
    if (at == std::string_view::npos) return false;
    line.remove_prefix(at + part.size());
  }
  return true;
}

bool IsHarmless(std::string_view line, const CatalogueEntry& entry) {
  return std::any_of(entry.unless.begin(), entry.unless.end(),
                     [&](std::string_view part) { return line.find(part) != std::string_view::npos; });
}

const CatalogueEntry* AdmissionIn(std::string_view line) {
  static const std::vector<const CatalogueEntry*> entries = EntriesWithAdmissions();
  line = line.substr(0, kLongestLine);
  if (line.find("fulldeck: ") < 16) return nullptr;
  std::string small(line);
  // ASCII only: bytes of other characters have no case.
  for (char& letter : small) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  for (const CatalogueEntry* entry : entries) {
    const bool admits = std::any_of(entry->admissions.begin(), entry->admissions.end(),
                                    [&](const Signature& signature) { return Holds(small, signature); });
    if (admits && !IsHarmless(line, *entry)) return entry;
  }
  for (const Reading& reading : kReadings) {
    if (!reading.admits(small)) continue;
    const CatalogueEntry* const entry = FindEntry(reading.id);
    if (entry != nullptr && !IsHarmless(line, *entry)) return entry;
  }
  return nullptr;
}

}  // namespace fulldeck::diagnosis
