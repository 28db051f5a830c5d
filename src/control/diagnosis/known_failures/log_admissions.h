// What the ranks' own logs admit during the run (diagnosis/known_failures/admissions.h): each code at most once per
// attempt.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "diagnosis/known_failures/catalogue.h"
#include "events/event.h"

namespace fulldeck::diagnosis {

// Not thread safe. Reads a bounded number of lines between two calls of Found, however many are written.
class LogAdmissions {
 public:
  // Some lines are admissions only in a run of several ranks, or on cards.
  LogAdmissions(int world_size, bool on_cards) : world_size_(world_size), on_cards_(on_cards) {}

  // A line that the rank printed.
  void Take(int rank, std::string_view line);

  // New findings: events "silent-error" with the fields code, check ("log"), ranks and evidence (the line).
  std::vector<events::Event> Found();

 private:
  struct Admission {
    const diagnosis::CatalogueEntry* entry = nullptr;
    std::string line;
    std::set<int> ranks;
  };
  int world_size_;
  bool on_cards_;
  int lines_ = 0;                                  // since the last call of Found
  std::map<std::string_view, Admission> waiting_;  // by code
  std::set<std::string_view> named_;
};

}  // namespace fulldeck::diagnosis
