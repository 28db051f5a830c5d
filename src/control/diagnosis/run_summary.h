// What a run reached: steps and samples per second, the global batch, and where the ranks' time went, from the figures
// that the ranks of this node put on the rank board. Pure: it reads no clock and no board.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "diagnosis/silent_faults.h"
#include "events/event.h"

namespace fulldeck::diagnosis {

// Of one attempt.
class RunSummary {
 public:
  // What the ranks show now. Rates are taken from the first to the last snapshot at which a rank's step had changed, so
  // that the time before the first step, also in collectives, and steps of earlier attempts do not count.
  void Update(const std::vector<RankSnapshot>& ranks);

  // Event "run-summary"; nothing where no rank has reported a step. Fields, each left out where it is not known: steps,
  // ranks (of this node that reported steps), steps_per_second, samples_per_second, global_batch (samples of a step
  // over the ranks of this node), data_percent, compute_percent, communication_percent, checkpoint_percent. Where ranks
  // do not report communication themselves, it is the time in collectives, taken off compute.
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
