// The catalogue of known failures: what a log says when it happens, why, and what to do. Data only; explain.h does the
// matching. An entry is one block in catalogue_*.cc and at least one log under tests/fixtures/logs that shows it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace fulldeck::diagnosis {

// How an entry stands to others that match the same log.
enum class Weight {
  kCause,    // says what went wrong
  kSymptom,  // follows from something else; told after every cause
  kSummary,  // only a launcher's last words; told when nothing else says more
};

// How sure a match makes us.
enum class Confidence { kCertain, kLikely, kPossible };

struct Explanation {
  const char* cause;  // one or two sentences
  const char* fix;    // what to do first
};

// A line that gives the failure away: it holds all of these parts, in this order, with anything between them. Letters
// count as they are written; a line break in a part stands for the line's beginning or end. The longest part has at
// least four letters.
using Signature = std::vector<std::string_view>;

struct CatalogueEntry {
  std::string_view id;     // C5: letter of the chapter and number; never given to another failure later
  std::string_view title;  // a few words
  Weight weight = Weight::kCause;
  Confidence confidence = Confidence::kCertain;
  Explanation english = {};
  Explanation chinese = {};
  std::vector<Signature> any_of = {};
  // Lines in which a script that goes on admits it; in small letters, matched whatever the case. The launcher looks for
  // these in the live logs (admissions.h), explain in any log.
  std::vector<Signature> admissions = {};
  std::vector<std::string_view> unless = {};  // a line with one of these means something else, or nothing
};

// Every entry, by id.
std::span<const CatalogueEntry> Catalogue();

// One chapter each, in a file of its own.
std::vector<CatalogueEntry> StartEntries();      // A: distributed start and backends
std::vector<CatalogueEntry> PlacementEntries();  // B: device placement and DDP
std::vector<CatalogueEntry> LaunchEntries();     // C: launch, environment, ports
std::vector<CatalogueEntry> StackEntries();      // D and E: vendor stack, Python packages
std::vector<CatalogueEntry> DataEntries();       // F, G and H: data, checkpoints, containers
std::vector<CatalogueEntry> CommonEntries();     // I: met again and again
std::vector<CatalogueEntry> LoopEntries();       // J: silent in the loop

// nullptr when there is none.
const CatalogueEntry* FindEntry(std::string_view id);

}  // namespace fulldeck::diagnosis
