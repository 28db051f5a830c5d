// Silent errors in the user's script: evaluates what each rank observed about itself (fulldeck_board_observe) and
// reports failure codes of `fulldeck explain`, each once per attempt. Comparisons between ranks step by step are in
// silent_faults.h.
//
//   A7  several ranks take optimizer steps, and none ever formed a process group
//   B6  the parameters are on the CPU although the rank has a card
//   B8  the parameters of two ranks are on one card
//   B9  the script changed which cards it sees, and trains on a different card than its own
//   C6  a child process failed, and the rank exited with code 0
//   D9  a module with a vendor's name is in use that no package installed
//   F6  the validation uses training samples (a note if it may be something other than a validation)
//   F7  trainable parameters never get a gradient; every label is the same
//   G2  a state dict was loaded that matches almost no parameter
//   G5  all ranks have the same random state (a note, never strict)
//   J6  NaN or Inf in gradients or losses
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "events/event.h"
#include "wire/rank_board.h"

namespace fulldeck::diagnosis {

struct RankObservations {
  int rank = 0;                // in the whole run
  std::string card;            // as assigned by the launcher: "gcu 3"; empty: the rank has none
  std::optional<double> loss;  // as last reported by the loop
  std::uint64_t step = 0;
  bool in_group = false;  // it has joined a group that the board shows
  std::array<std::optional<wire::Observation>, FULLDECK_BOARD_CHECKS> checks;
};

std::vector<RankObservations> ObservationsOn(const wire::RankBoard& board);

// The codes in FULLDECK_CHECKS_OFF ("F6,C6"): events "silent-error" with one of them are not reported, whichever check
// found them. Fails on a code that no such event has.
base::Result<std::set<std::string>> ChecksOff(std::string_view text);

// Pure except for its memory of reported codes: reads no clock and no board.
class ScriptFaults {
 public:
  // `world_size` of the run; `cards_are_shared`: intentionally (--share-cards).
  ScriptFaults(int world_size, bool cards_are_shared) : world_size_(world_size), cards_are_shared_(cards_are_shared) {}

  // New findings: events "silent-error" with the fields code, check, ranks and evidence, and "check-disabled" with the
  // fields ranks and reason. `ended_well`: all ranks exited with code 0, so no more observations follow.
  std::vector<events::Event> Update(const std::vector<RankObservations>& ranks, bool ended_well);

 private:
  using Ranks = std::vector<RankObservations>;
  using Events = std::vector<events::Event>;
  // Reports `code` for the ranks `which`, unless that is empty or the check has reported already.
  void Name(const char* code, const char* check, const Ranks& ranks, const std::vector<std::size_t>& which,
            const std::string& evidence, const std::string& fix, Events& found,
            events::Severity severity = events::Severity::kWarning);
  std::string Whom(const Ranks& ranks, const std::vector<std::size_t>& which) const;
  void NoGroup(const Ranks& ranks, bool ended_well, Events& found);
  void Weights(const Ranks& ranks, Events& found);
  void Gradients(const Ranks& ranks, Events& found);
  void Labels(const Ranks& ranks, bool ended_well, Events& found);
  void Validation(const Ranks& ranks, Events& found);
  void Children(const Ranks& ranks, Events& found);
  void Devices(const Ranks& ranks, Events& found);
  void Finite(const Ranks& ranks, Events& found);
  void Modules(const Ranks& ranks, Events& found);
  void RandomState(const Ranks& ranks, Events& found);
  void Disabled(const Ranks& ranks, Events& found);

  int world_size_;
  bool cards_are_shared_;
  std::set<std::string> named_;
};

}  // namespace fulldeck::diagnosis
