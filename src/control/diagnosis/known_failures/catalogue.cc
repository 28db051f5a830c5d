#include "diagnosis/known_failures/catalogue.h"

#include <algorithm>

namespace fulldeck::diagnosis {

std::span<const CatalogueEntry> Catalogue() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all;
    for (const auto chapter :
         {StartEntries, PlacementEntries, LaunchEntries, StackEntries, DataEntries, CommonEntries, LoopEntries}) {
      const std::vector<CatalogueEntry> some = chapter();
      all.insert(all.end(), some.begin(), some.end());
    }
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
