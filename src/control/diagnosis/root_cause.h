// Which rank began: of all that failed, the one whose failure the others only followed. Pure; every rule is a row of
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
  int order = 0;                        // the launcher saw it in this turn; several may share one
  bool after_stop = false;              // it ended after we had begun to stop the ranks
  std::optional<double> error_seconds;  // time stamp of its error file
  base::TimePoint at{};                 // when the launcher saw it
};

// The first to fail: position in `exits`, nothing when none failed. The answer does not depend on their order.
//  - What ended before we stopped anything comes before what ended after.
//  - Else the earlier turn; in one turn a signal (a crash, a kill) comes before an exit code, which is how others
//    notice; else the lower rank.
//  - Time stamps of error files come from a clock that may be set, so they decide only between that one and others that
//    ended within a second of it: a rank that failed first may take a moment longer to end.
std::optional<std::size_t> RootCause(const std::vector<RankExit>& exits);

// A group of ranks as one member shows it on the board.
struct GroupSeen {
  std::uint64_t id = 0;
  std::uint32_t size = 0;
  std::uint64_t sequence = 0;
  bool in_flight = false;
};

// All that is known of a rank at the end of an attempt.
struct RankFacts {
  int local_rank = 0;
  int rank = 0;                         // in the whole run
  std::optional<RankExit> exit_status;  // absent: it still runs
  // As it reported its own failure on the board.
  wire::FailureCode code = wire::FailureCode::kNotReported;
  int culprit = -1;  // RANK of who began, by its account; -1: not known
  std::uint64_t failed_ns = 0;
  std::string text;
  std::vector<GroupSeen> groups;
  std::uint64_t left_ns = 0;  // when it left a group last; 0: it has left none
};

enum class RootReason {
  kExitCode,
  kSignal,
  kLeftEarly,       // it left while others still communicated with it
  kDifferentCalls,  // it made another call than the others
  kNonfinite,       // it gave a value that is not finite
  kNotArrived,      // others waited for it until their time-out
};
// "left-early"
const char* NameOf(RootReason reason);

struct Root {
  std::vector<int> local_ranks;  // who began; several where they cannot be distinguished, none where it was elsewhere
  int rank = -1;                 // RANK of the first of them; of another node too
  RootReason reason = RootReason::kExitCode;
  int noticed_by = 0;  // local rank of the first failure: its exit code is the run's unless the root has one of its own

  bool operator==(const Root&) const = default;
};

// For whom the ranks of this host waited, as it was last seen before one of them failed.
struct LastWait {
  int awaited = -1;          // RANK
  std::vector<int> waiting;  // local ranks
  std::uint64_t group = 0;   // the call to which it had not come
  std::uint64_t sequence = 0;
  std::uint64_t at_ns = 0;
};

// A rank that waited so and then lost a peer, without knowing which, did not see it arrive: its time-out ended the
// call. Its report gets that culprit. Only what it reports within 2 s after the wait was seen, or 30 s where the
// awaited rank never came to the call; and not where the awaited rank has left, which says more.
void BlameAwaited(std::vector<RankFacts>& ranks, const LastWait& wait);

// It is known that ranks made different calls, and not which of them began: nobody is blamed who only noticed it. Ranks
// that have reported more keep that.
void BlameDifferentCalls(std::vector<RankFacts>& ranks);

// Follows from the first failure what the ranks reported themselves: a rank that says that another one left, made the
// odd call or did not arrive is not the one that began. Where a rank only knows that its communication failed, or died
// in a call, the one that had exited with code 0 before is.
std::optional<Root> RootOf(const std::vector<RankFacts>& ranks, int world_size);

}  // namespace fulldeck::diagnosis
