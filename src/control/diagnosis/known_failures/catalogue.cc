#include "diagnosis/known_failures/catalogue.h"

#include <algorithm>
#include <utility>

#include "diagnosis/embedded_texts.h"
#include "texts/table.h"

namespace fulldeck::diagnosis {
namespace {

CatalogueEntry Read(const texts::EmbeddedFile& file) {
  texts::Table table(file);
  CatalogueEntry entry;
  entry.id = table.TakeText("id");
  if (!file.path.ends_with("/" + entry.id + ".toml")) table.Refuse("the id and the name of the file differ");
  entry.title = table.TakeText("title");
  entry.weight = table.TakeChoice<Weight>(
      "weight", {{"cause", Weight::kCause}, {"symptom", Weight::kSymptom}, {"summary", Weight::kSummary}});
  entry.confidence = table.TakeChoice<Confidence>(
      "confidence",
      {{"certain", Confidence::kCertain}, {"likely", Confidence::kLikely}, {"possible", Confidence::kPossible}});
  base::BilingualText cause = table.TakeBilingualText("cause");
  base::BilingualText fix = table.TakeBilingualText("fix");
  entry.english = {std::move(cause.english), std::move(fix.english)};
  entry.chinese = {std::move(cause.chinese), std::move(fix.chinese)};
  texts::Table log = table.TakeTable("log");
  entry.any_of = log.TakeTextLists("any_of");
  entry.admissions = log.TakeTextLists("admissions");
  entry.unless = log.TakeTexts("unless");
  log.Done();
  table.Done();
  return entry;
}

// C10 as C, 10 and what stands behind it.
std::pair<std::pair<char, std::size_t>, std::string_view> Order(const CatalogueEntry& entry) {
  const std::string_view number = std::string_view(entry.id).substr(1);
  const std::size_t digits = std::min(number.find_first_not_of("0123456789"), number.size());
  std::size_t value = 0;
  for (const char digit : number.substr(0, digits)) value = value * 10 + static_cast<std::size_t>(digit - '0');
  return {{entry.id.front(), value}, number.substr(digits)};
}

}  // namespace

std::span<const CatalogueEntry> Catalogue() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all;
    for (const texts::EmbeddedFile& file : EmbeddedTexts()) all.push_back(Read(file));
    std::sort(all.begin(), all.end(),
              [](const CatalogueEntry& a, const CatalogueEntry& b) { return Order(a) < Order(b); });
    return all;
  }();
  return entries;
}

const CatalogueEntry* FindEntry(std::string_view id) {
  const auto entries = Catalogue();
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const CatalogueEntry& e) { return e.id == id; });
  return entry == entries.end() ? nullptr : &*entry;
}

}  // namespace fulldeck::diagnosis
