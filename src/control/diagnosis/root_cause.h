// Finds the root cause among failed ranks: the rank whose failure made the others fail. Pure; every rule is a row of
// the test.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnosis/exit_status.h"
#include "wire/rank_board.h"

namespace fulldeck::diagnosis {

struct RankExit {
  int local_rank = 0;
  ExitStatus exit_status;
  int order = 0;                        // the launcher saw it in this turn; several ranks may share one
  bool after_stop = false;              // it ended after we had started to stop the ranks
  std::optional<double> error_seconds;  // timestamp of its error file
  base::TimePoint at{};                 // when the launcher saw it
};

// The first rank to fail, as an index into `exits`; nullopt if none failed. The result does not depend on their order.
//   - Ranks that ended before we stopped anything come before ranks that ended after.
//   - Then the earlier turn; within a turn a signal (a crash, a kill) comes before an exit code, which is how other
//     ranks react; then the lower rank.
//   - Timestamps of error files come from a clock that may be set, so they only decide between the rank found so and
//     others that ended within a second of it: a rank that failed first may take longer to exit.
std::optional<std::size_t> RootCause(const std::vector<RankExit>& exits);

// A group as one member reports it on the board.
struct GroupSeen {
  std::uint64_t id = 0;
  std::uint32_t size = 0;
  std::uint64_t sequence = 0;
  bool in_flight = false;
};

// All facts about a rank at the end of an attempt.
struct RankFacts {
  int local_rank = 0;
  int rank = 0;                         // in the whole run
  std::optional<RankExit> exit_status;  // absent: it is still running
  // The failure that it reported on the board.
  wire::FailureCode code = wire::FailureCode::kNotReported;
  int culprit = -1;  // global rank that it blames; -1: unknown
  std::uint64_t failed_ns = 0;
  std::string text;
  std::vector<GroupSeen> groups;
  std::uint64_t left_ns = 0;  // when it last left a group; 0: never
};

enum class RootReason {
  kExitCode,
  kSignal,
  kLeftEarly,       // it left while others still communicated with it
  kDifferentCalls,  // it made a different collective than the others
  kNonfinite,       // it contributed a value that is not finite
  kNotArrived,      // others waited for it until their timeout
};
// "left-early"
const char* NameOf(RootReason reason);

struct Root {
  // the root cause; several if they cannot be distinguished, none if it is on another node
  std::vector<int> local_ranks;
  int rank = -1;  // global rank of the first of them, also for another node
  RootReason reason = RootReason::kExitCode;
  // local rank of the first failure: its exit code is the run's unless the root cause has one of its own
  int noticed_by = 0;

  bool operator==(const Root&) const = default;
};

// Which rank the ranks of this node waited for, as last seen before one of them failed.
struct LastWait {
  int awaited = -1;          // global rank
  std::vector<int> waiting;  // local ranks
  std::uint64_t group = 0;   // the collective that it had not reached
  std::uint64_t sequence = 0;
  std::uint64_t at_ns = 0;
};

// A rank that waited like this and then lost an unknown peer did not see the awaited rank arrive: its timeout ended the
// collective. Its report is assigned that culprit. Applies only to reports within 2 s after the wait was seen, or 30 s
// if the awaited rank never reached the collective, and not if the awaited rank has left, which is more specific.
void BlameAwaited(std::vector<RankFacts>& ranks, const LastWait& wait);

// Ranks are known to have made different collectives, but not which one is odd: ranks that only noticed it are not
// blamed. Ranks that have reported more specific failures keep them.
void BlameDifferentCalls(std::vector<RankFacts>& ranks);

// Follows the ranks' own reports from the first failure: a rank that reports that another one left, made the odd
// collective or did not arrive is not the root cause. If a rank only reports that its communication failed, or died in
// a collective, the root cause is the rank that had exited with code 0 before.
std::optional<Root> RootOf(const std::vector<RankFacts>& ranks, int world_size);

}  // namespace fulldeck::diagnosis
