// Summary of a run: steps and samples per second, the global batch, and how the ranks spent their time, from the values
// that the ranks of this node report on the rank board. Pure: reads no clock and no board.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "diagnosis/silent_faults.h"
#include "events/event.h"

namespace fulldeck::diagnosis {

// One per attempt.
class RunSummary {
 public:
  // `ranks`: current snapshots. Rates are measured from the first to the last snapshot in which a rank's step had
  // changed, so that the time before the first step (including collectives) and steps of earlier attempts do not count.
  void Update(const std::vector<RankSnapshot>& ranks);

  // Event "run-summary"; nullopt if no rank has reported a step. Fields, omitted if unknown: steps, ranks (of this node
  // that reported steps), steps_per_second, samples_per_second, global_batch (samples per step over the ranks of this
  // node), data_percent, compute_percent, communication_percent, checkpoint_percent. If ranks do not report
  // communication themselves, it is the time in collectives, subtracted from compute.
  std::optional<events::Event> AtTheEnd(int world_size) const;

 private:
  struct Point {
    std::uint64_t step = 0;
    std::uint64_t step_at_ns = 0;
    std::uint64_t samples = 0;
  };
  struct Seen {
    Point first;
    RankSnapshot last;
  };
  std::map<int, Seen> ranks_;
  std::map<int, std::uint64_t> waited_before_steps_;  // in collectives, until the last snapshot before the first step
};

}  // namespace fulldeck::diagnosis
