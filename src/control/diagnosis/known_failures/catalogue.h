// The catalogue of known failures: what a log says when it happens, why, and what to do. Data only; explain.h does the
// matching. An entry is a file data/failures/ID.toml and at least one log under tests/fixtures/logs that shows it. The
// files are compiled in, and read when an entry is first asked for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::diagnosis {

// How an entry stands to others that match the same log.
enum class Weight {
  kCause,    // says what went wrong
  kSymptom,  // follows from something else; comes after every cause
  kSummary,  // only a launcher's last words; reported when nothing else says more
};

// How sure a match makes us.
enum class Confidence { kCertain, kLikely, kPossible };

struct Explanation {
  std::string cause;  // one or two sentences
  std::string fix;    // what to do first
};

// A line that gives the failure away: it holds all of these parts, in this order, with anything between them. Letters
// count as they are written; a line break in a part stands for the line's beginning or end. The longest part has at
// least four letters.
using Signature = std::vector<std::string>;

struct CatalogueEntry {
  std::string id;     // C5: letter of the chapter and number; never given to another failure later
  std::string title;  // a few words of English
  Weight weight = Weight::kCause;
  Confidence confidence = Confidence::kCertain;
  Explanation english;
  Explanation chinese;
  std::vector<Signature> any_of;
  // Lines in which a script that goes on admits it; in small letters, matched whatever the case. The launcher looks for
  // these in the live logs (admissions.h), explain in any log.
  std::vector<Signature> admissions;
  std::vector<std::string> unless;  // a line with one of these means something else, or nothing
};

// Every entry, by id: C2 before C10. Any thread.
std::span<const CatalogueEntry> Catalogue();

// nullptr when there is none.
const CatalogueEntry* FindEntry(std::string_view id);

}  // namespace fulldeck::diagnosis
