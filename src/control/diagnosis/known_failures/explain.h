// Explains a log: which known failures it shows, where, and which came first. Reads line by line, so memory use does
// not depend on the length of the log.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

struct Finding {
  const CatalogueEntry* entry = nullptr;
  std::uint64_t first_line = 0;  // counted from 1
  std::uint64_t times = 0;       // lines that match
  std::string excerpt;           // the first of them, printable, truncated to the width of a screen
};

// Not thread safe.
class LogExplainer {
 public:
  // The next chunk of the log, of any size.
  void Feed(std::string_view text);

  // Findings in everything that was fed: causes first, in the order of the log, then symptoms. A launcher's summary is
  // returned only if there is neither a known failure nor an exception of the program itself.
  std::vector<Finding> Finish();

  std::uint64_t lines() const { return lines_; }

 private:
  void TakeLine(std::string_view line);
  void Record(const CatalogueEntry& entry, std::string_view line);

  std::string unfinished_;
  bool skipping_ = false;         // the rest of a line that is too long
  bool shows_exception_ = false;  // the end of a traceback that is not the launcher's
  std::uint64_t lines_ = 0;
  std::map<std::string_view, Finding> findings_;  // by id
  std::vector<std::uint32_t> grams_;              // by hash of four letters: the last line that contains them
};

// A complete text.
std::vector<Finding> ExplainLog(std::string_view text);

}  // namespace fulldeck::diagnosis
