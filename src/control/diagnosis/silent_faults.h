// Trainings that run but are wrong: compares what the ranks of this node report on the board, and reports failure codes
// of `fulldeck explain`, each once per attempt, in the first steps. Only the ranks of this node are compared; ranks of
// several nodes compare themselves through the store of their group (docs/python.md).
//
//   J1  ranks trained their first batches on the same data
//   J2  an epoch that should be shuffled started in the order of the previous one
//   J3  parameters differ between ranks after the same step
//   J4  steps without a reduction of the gradients
//   J5  only one rank makes steps, or all others only wait for it
//   G5  two ranks saved to the same file
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "events/event.h"
#include "wire/rank_board.h"

namespace fulldeck::diagnosis {

// One sample of a rank's record on the board.
struct RankSnapshot {
  int rank = 0;                    // in the whole run
  std::optional<wire::Loop> loop;  // absent: it has reported nothing
  std::uint64_t waited_ns = 0;     // total time in collectives over all groups; 0: not reported
};

std::vector<RankSnapshot> TakeSnapshots(const wire::RankBoard& board, base::TimePoint now);

// Pure except for its memory of earlier snapshots: reads no clock and no board. All snapshots of one attempt have the
// same ranks in the same order.
class SilentFaults {
 public:
  // `world_size` of the run: if there are more ranks than snapshots, messages mention that they concern this node.
  explicit SilentFaults(int world_size) : world_size_(world_size) {}

  // New findings: events "silent-error" with the fields code ("J1") and ranks.
  std::vector<events::Event> Update(const std::vector<RankSnapshot>& ranks, base::TimePoint now);
  // The same after all ranks have exited with code 0: also judges trainings too short for long waits.
  std::vector<events::Event> CheckAtEnd(const std::vector<RankSnapshot>& ranks, base::TimePoint now);

 private:
  using Events = std::vector<events::Event>;
  events::Event Found(const char* code, const std::vector<RankSnapshot>& ranks, const std::set<std::size_t>& which,
                      const std::string& message) const;
  bool Name(const char* row);
  std::string Whom(const std::vector<RankSnapshot>& ranks, const std::set<std::size_t>& which) const;
  void SameBatches(const std::vector<RankSnapshot>& ranks, Events& found);
  void SameOrder(const std::vector<RankSnapshot>& ranks, Events& found);
  void DifferentParameters(const std::vector<RankSnapshot>& ranks, Events& found);
  void NothingReduced(const std::vector<RankSnapshot>& ranks, Events& found);
  void SameFile(const std::vector<RankSnapshot>& ranks, Events& found);
  void OneAlone(const std::vector<RankSnapshot>& ranks, base::TimePoint now, Events& found);
  void OthersWait(const std::vector<RankSnapshot>& ranks, base::TimePoint now, Events& found);

  struct Alone {  // the one rank that has made steps since
    std::size_t index = 0;
    std::uint64_t from_step = 0;
    base::TimePoint since{};
  };
  struct Window {  // in which the ranks' waiting times are measured
    base::TimePoint since{};
    std::vector<std::uint64_t> steps;
    std::vector<std::uint64_t> reported_ns;  // communication_ns
    std::vector<std::uint64_t> waited_ns;
  };
  Window WindowFrom(const std::vector<RankSnapshot>& ranks, base::TimePoint now) const;

  int world_size_;
  std::set<std::string> named_;
  // The last few of each rank, by step: a rank that is one step ahead is compared when the others have arrived.
  std::vector<std::map<std::uint64_t, std::uint64_t>> parameters_;
  std::vector<std::uint64_t> last_steps_;
  std::optional<Alone> alone_;
  std::optional<Window> window_;
  std::optional<std::size_t> worker_;  // the rank that the others waited for in the last windows
  int windows_ = 0;                    // consecutive
};

}  // namespace fulldeck::diagnosis
