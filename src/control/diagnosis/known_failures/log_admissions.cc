#include "diagnosis/known_failures/log_admissions.h"

#include <fmt/format.h>

#include "base/text.h"
#include "diagnosis/known_failures/admissions.h"

namespace fulldeck::diagnosis {
namespace {

constexpr int kMaxLines = 5000;
constexpr std::size_t kLongestEvidence = 200;

}  // namespace

void LogAdmissions::Take(int rank, std::string_view line) {
  if (++lines_ > kMaxLines) return;
  const diagnosis::CatalogueEntry* const entry = diagnosis::AdmissionIn(line);
  if (entry == nullptr || named_.contains(entry->id)) return;
  const bool about_several = entry->id == "A7" || entry->id == "C1";
  if ((about_several && world_size_ < 2) || (entry->id == "B6" && !on_cards_)) return;
  Admission& admission = waiting_[entry->id];
  if (admission.entry == nullptr) {
    admission.entry = entry;
    admission.line = base::Printable(base::Trim(line.substr(0, kLongestEvidence)));
  }
  admission.ranks.insert(rank);
}

std::vector<events::Event> LogAdmissions::Found() {
  std::vector<events::Event> found;
  for (const auto& [code, admission] : waiting_) {
    named_.insert(code);
    const std::vector<int> ranks(admission.ranks.begin(), admission.ranks.end());
    found.push_back({"silent-error",
                     events::Severity::kWarning,
                     {{"code", std::string(code)},
                      {"check", std::string("log")},
                      {"ranks", events::Numbers(ranks)},
                      {"evidence", admission.line}},
                     fmt::format("{}: rank {} admits it in its log: \"{}\". {} Fix: {}", code, ranks.front(),
                                 admission.line, admission.entry->english.cause, admission.entry->english.fix)});
  }
  waiting_.clear();
  lines_ = 0;
  return found;
}

}  // namespace fulldeck::diagnosis
