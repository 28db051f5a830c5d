// Formats the progress line of a run from the rank board. Pure.
#pragma once

#include <string>

#include "base/clock.h"
#include "wire/rank_board.h"

namespace fulldeck::launcher {

// "step 120/1000, loss 0.512, 81.3 samples/s, 3 min; slowest rank 5 at 118"; empty if no rank has reported a step.
std::string ProgressLine(const wire::RankBoard& board, base::Duration since_start);

}  // namespace fulldeck::launcher
