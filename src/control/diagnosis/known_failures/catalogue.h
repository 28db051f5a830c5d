// The catalogue of known failures: what a log shows, the cause, and the fix. Data only; explain.h does the matching. An
// entry is a file data/failures/ID.toml and at least one log under tests/fixtures/logs that shows it. The files are
// compiled in, and parsed when an entry is first needed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::diagnosis {

// How an entry relates to others that match the same log.
enum class Weight {
  kCause,    // the cause of the failure
  kSymptom,  // a consequence of something else; reported after every cause
  kSummary,  // only the launcher's summary; reported if nothing else says more
};

// How certain a match is.
enum class Confidence { kCertain, kLikely, kPossible };

struct Explanation {
  std::string cause;  // one or two sentences
  std::string fix;    // what to do first
};

// Identifies a failure by a line: the line contains all of these parts in this order, with anything between them. Case
// sensitive; a line break in a part matches the beginning or end of the line. The longest part has at least four
// letters.
using Signature = std::vector<std::string>;

struct CatalogueEntry {
  std::string id;     // C5: letter of the chapter and number; never reused for another failure
  std::string title;  // a few words
  Weight weight = Weight::kCause;
  Confidence confidence = Confidence::kCertain;
  Explanation english;
  Explanation chinese;
  std::vector<Signature> any_of;
  // Lines in which a script admits that it continues anyway; lower case, matched case-insensitively. The launcher
  // searches the live logs for these (admissions.h); explain searches any log.
  std::vector<Signature> admissions;
  std::vector<std::string> unless;  // a line with one of these means something else
};

// Every entry, by id: C2 before C10. Any thread.
std::span<const CatalogueEntry> Catalogue();

// nullptr if there is none.
const CatalogueEntry* FindEntry(std::string_view id);

}  // namespace fulldeck::diagnosis
