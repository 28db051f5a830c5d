// The gate "every card works": N ranks, N distinct cards, each seen above 0 % within a time. Pure: it is shown readings
// and gives a verdict; card_watch.h takes the readings.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fulldeck::launcher {

struct CardReading {
  int card = 0;                             // position among the run's cards
  std::optional<double> percent;            // absent: no source tells it
  std::optional<std::vector<int>> holders;  // pids that have it open; absent: cannot be told
};

struct GateRank {
  int rank = 0;
  int card = 0;                // position among the run's cards
  std::vector<int> processes;  // the rank and its descendants now
};

struct GateVerdict {
  bool all_work = false;
  bool cannot_tell = false;        // no card showed 0 %, but of some nothing is known
  std::vector<std::string> lines;  // what to say; whole sentences
};

class IdleGate {
 public:
  // Names as people call the cards: "gcu 3".
  explicit IdleGate(std::vector<std::string> card_names) : names_(std::move(card_names)), cards_(names_.size()) {}

  std::size_t size() const { return names_.size(); }

  void Observe(const CardReading& reading);

  // Every card has been seen above 0 %.
  bool Passed() const;

  // What is true at the end of the time, with the likely cause for each idle card.
  GateVerdict Verdict(const std::vector<GateRank>& ranks) const;

 private:
  struct Seen {
    bool worked = false;
    bool told = false;
    std::optional<std::vector<int>> holders;
  };
  std::vector<std::string> names_;
  std::vector<Seen> cards_;
};

}  // namespace fulldeck::launcher
