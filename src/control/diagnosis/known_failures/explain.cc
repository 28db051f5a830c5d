#include "diagnosis/known_failures/explain.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "diagnosis/known_failures/admissions.h"
#include "diagnosis/out_of_memory.h"

namespace fulldeck::diagnosis {
namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 10;
constexpr std::size_t kLongestExcerpt = 240;

// Color codes and cursor movements would split the text of a signature.
std::string WithoutEscapes(std::string_view line) {
  std::string plain;
  plain.reserve(line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
    }
  }
  return plain;
}

// Four letters as a number below kGrams.
constexpr std::size_t kGramLength = 4;
constexpr std::size_t kGrams = std::size_t{1} << 16;

std::size_t Gram(const char* letters) {
  std::uint32_t value = 0;
  std::memcpy(&value, letters, kGramLength);
  return (value * 2654435761U) >> 16;
}

// A signature with two groups of four letters that every matching line must contain. Most lines contain neither, and
// are rejected with two lookups instead of a search.
struct IndexedSignature {
  const CatalogueEntry* entry;
  const Signature* signature;
  std::size_t first_gram;
  std::size_t last_gram;
};

const std::vector<IndexedSignature>& IndexedSignatures() {
  static const std::vector<IndexedSignature> indexed = [] {
    std::vector<IndexedSignature> all;
    for (const CatalogueEntry& entry : Catalogue()) {
      for (const Signature& signature : entry.any_of) {
        const std::string_view longest =
            *std::max_element(signature.begin(), signature.end(),
                              [](std::string_view x, std::string_view y) { return x.size() < y.size(); });
        FULLDECK_CHECK(longest.size() >= kGramLength);
        all.push_back({&entry, &signature, Gram(longest.data()), Gram(longest.data() + longest.size() - kGramLength)});
      }
    }
    return all;
  }();
  return indexed;
}

// The same text occurs in two failures; the numbers in the line decide.
const CatalogueEntry* Refine(const CatalogueEntry& entry, std::string_view line) {
  if (entry.id != "I1" || WhoHoldsTheMemory(line) != MemoryHog::kAnotherProcess) return &entry;
  const CatalogueEntry* held = FindEntry("C8");
  return held != nullptr ? held : &entry;
}

bool IsNameLetter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         letter == '_' || letter == '.';
}

// "ValueError: …" at the start of a line or after a rank's prefix, unless it is a launcher's summary of a rank's exit.
bool EndsATraceback(std::string_view line) {
  if (const auto prefix = line.find("]: "); prefix < 20) line.remove_prefix(prefix + 3);
  const auto colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || name.empty() || !std::all_of(name.begin(), name.end(), IsNameLetter))
    return false;
  if (!name.ends_with("Error") && !name.ends_with("Exception")) return false;
  for (const std::string_view launchers : {"ChildFailedError", "CalledProcessError", "SignalException"}) {
    if (name.ends_with(launchers)) return false;
  }
  return true;
}

std::string Excerpt(std::string_view line) {
  std::string text(base::Trim(line));
  std::replace(text.begin(), text.end(), '\t', ' ');
  text = base::Printable(text.substr(0, kLongestExcerpt));
  return text;
}

}  // namespace

void LogExplainer::Feed(std::string_view text) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view chunk = text.substr(0, end);
    if (!skipping_) unfinished_.append(chunk.substr(0, kLongestLine - std::min(kLongestLine, unfinished_.size())));
    skipping_ = unfinished_.size() >= kLongestLine;
    if (end == std::string_view::npos) return;
    TakeLine(unfinished_);
    unfinished_.clear();
    skipping_ = false;
    text.remove_prefix(end + 1);
  }
}

void LogExplainer::TakeLine(std::string_view raw) {
  ++lines_;
  while (!raw.empty() && (raw.back() == '\r' || raw.back() == ' ')) raw.remove_suffix(1);
  // Signatures may match the line's beginning and end.
  const std::string framed = "\n" + WithoutEscapes(raw) + "\n";
  const std::string_view line = std::string_view(framed).substr(1, framed.size() - 2);
  shows_exception_ = shows_exception_ || EndsATraceback(line);
  grams_.resize(kGrams);
  // Wraps around after 2^32 lines; a stale entry then costs one unnecessary search.
  const auto stamp = static_cast<std::uint32_t>(lines_);
  for (std::size_t i = 0; i + kGramLength <= framed.size(); ++i) grams_[Gram(framed.data() + i)] = stamp;
  const CatalogueEntry* shown = nullptr;
  for (const IndexedSignature& candidate : IndexedSignatures()) {
    if (grams_[candidate.first_gram] != stamp || grams_[candidate.last_gram] != stamp) continue;
    // Signatures of one entry are adjacent: one match is enough.
    if (candidate.entry == shown || !Holds(framed, *candidate.signature)) continue;
    if (IsHarmless(framed, *candidate.entry)) continue;
    shown = candidate.entry;
    Record(*Refine(*candidate.entry, line), line);
  }
  const CatalogueEntry* const admitted = AdmissionIn(line);
  if (admitted != nullptr && admitted != shown) Record(*admitted, line);
}

void LogExplainer::Record(const CatalogueEntry& entry, std::string_view line) {
  Finding& finding = findings_[entry.id];
  if (finding.times++ > 0) return;
  finding.entry = &entry;
  finding.first_line = lines_;
  finding.excerpt = Excerpt(line);
}

std::vector<Finding> LogExplainer::Finish() {
  if (!unfinished_.empty()) TakeLine(unfinished_);
  unfinished_.clear();
  std::vector<Finding> found;
  for (const auto& [id, finding] : findings_) found.push_back(finding);
  const auto is_summary = [](const Finding& finding) { return finding.entry->weight == Weight::kSummary; };
  const bool says_more = shows_exception_ || !std::all_of(found.begin(), found.end(), is_summary);
  if (says_more) std::erase_if(found, is_summary);
  std::stable_sort(found.begin(), found.end(), [](const Finding& a, const Finding& b) {
    return std::pair(a.entry->weight, a.first_line) < std::pair(b.entry->weight, b.first_line);
  });
  return found;
}

std::vector<Finding> ExplainLog(std::string_view text) {
  LogExplainer explainer;
  explainer.Feed(text);
  return explainer.Finish();
}

}  // namespace fulldeck::diagnosis
