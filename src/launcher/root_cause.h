// Which rank began: of all that failed, the one whose failure the others only followed. Pure; every rule is a row of
// the test.
#pragma once

#include <optional>
#include <vector>

#include "launcher/ending.h"

namespace fulldeck::launcher {

struct RankEnding {
  int local_rank = 0;
  Ending ending;
  int order = 0;                        // the launcher saw it in this turn; several may share one
  bool after_stop = false;              // it ended after we had begun to stop the ranks
  std::optional<double> error_seconds;  // time stamp of its error file
};

// Position in `endings`, nothing when none failed.
//  - Of two error files the older one counts: a rank that failed first may take longer to end.
//  - Else what ended before we stopped anything comes before what ended after.
//  - Else the earlier turn; in one turn a signal (a crash, a kill) comes before an exit code, which is how others
//  notice.
//  - Else the lower rank.
std::optional<std::size_t> RootCause(const std::vector<RankEnding>& endings);

}  // namespace fulldeck::launcher
