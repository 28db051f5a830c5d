#include "launcher/idle_gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace fulldeck::launcher {
namespace {

bool HoldsAny(const std::vector<int>& holders, const GateRank& rank) {
  return std::any_of(holders.begin(), holders.end(), [&](int pid) {
    return std::find(rank.processes.begin(), rank.processes.end(), pid) != rank.processes.end();
  });
}

std::string RankList(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return base::Join(words, ", ");
}

}  // namespace

void IdleGate::Observe(const CardReading& reading) {
  if (reading.card < 0 || static_cast<std::size_t>(reading.card) >= cards_.size()) return;
  Seen& seen = cards_[static_cast<std::size_t>(reading.card)];
  seen.told = seen.told || reading.percent.has_value();
  seen.worked = seen.worked || reading.percent.value_or(0) > 0;
  if (reading.holders) seen.holders = reading.holders;
}

bool IdleGate::Passed() const {
  return std::all_of(cards_.begin(), cards_.end(), [](const Seen& seen) { return seen.worked; });
}

GateVerdict IdleGate::Verdict(const std::vector<GateRank>& ranks) const {
  GateVerdict verdict;
  if (Passed()) {
    verdict.all_work = true;
    return verdict;
  }
  bool idle = false;
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    const Seen& seen = cards_[card];
    if (seen.worked) continue;
    if (!seen.told) {
      verdict.lines.push_back(
          fmt::format("cannot tell whether {} works: no source tells its utilisation", names_[card]));
      continue;
    }
    const auto own = std::find_if(ranks.begin(), ranks.end(),
                                  [&](const GateRank& rank) { return rank.card == static_cast<int>(card); });
    idle = true;
    std::string line = fmt::format("{} is IDLE: it has shown 0 % ever since the start", names_[card]);
    if (own != ranks.end()) {
      // Where is the rank that should keep it busy?
      std::optional<std::size_t> elsewhere;
      for (std::size_t other = 0; other < cards_.size(); ++other) {
        if (other != card && cards_[other].holders && HoldsAny(*cards_[other].holders, *own)) elsewhere = other;
      }
      if (elsewhere) {
        std::vector<int> crowd;
        for (const GateRank& rank : ranks) {
          if (rank.rank != own->rank && HoldsAny(*cards_[*elsewhere].holders, rank)) crowd.push_back(rank.rank);
        }
        line += fmt::format(
            "; its rank {} works on {} instead{}. The script does not use LOCAL_RANK: it must put its model and data "
            "on "
            "device number LOCAL_RANK",
            own->rank, names_[*elsewhere],
            crowd.empty() ? ""
                          : fmt::format(", as {} {}", crowd.size() == 1 ? "does rank" : "do ranks", RankList(crowd)));
      } else if (seen.holders && !HoldsAny(*seen.holders, *own)) {
        line += fmt::format(
            "; its rank {} has not opened it. The script computes on the processors, or is still reading "
            "data; look with: fulldeck logs --rank {}",
            own->rank, own->rank);
      } else if (seen.holders) {
        line += fmt::format(
            "; its rank {} has opened it and gives it no work: it waits for data, for the other ranks, or "
            "the card does not compute",
            own->rank);
      } else {
        line += fmt::format("; look at its rank {} with: fulldeck logs --rank {}", own->rank, own->rank);
      }
    }
    verdict.lines.push_back(std::move(line));
  }
  verdict.cannot_tell = !idle;
  return verdict;
}

}  // namespace fulldeck::launcher
