#include "diagnosis/root_cause.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <tuple>

namespace fulldeck::diagnosis {
namespace {

using wire::FailureCode;

constexpr base::Duration kStampsDecideWithin = std::chrono::seconds(1);

// A total order: two ranks never compare equal, so the order of `exits` does not affect the result.
auto Key(const RankExit& exit_status) {
  return std::make_tuple(exit_status.after_stop, exit_status.order, exit_status.exit_status.signal_number() == 0,
                         exit_status.local_rank);
}

const RankFacts* FindRank(const std::vector<RankFacts>& ranks, int rank) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const RankFacts& one) { return one.rank == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

bool FailedByItself(const RankFacts& rank) {
  return rank.exit_status && !rank.exit_status->after_stop && !rank.exit_status->exit_status.ok();
}

// A crash is a root cause, whatever was reported before it. An abort after a report is not: an uncaught C++ exception
// ends in one, and so does torch occasionally if Python exits while a Gloo group exists.
bool Crashed(const RankFacts& rank) {
  if (!FailedByItself(rank) || rank.exit_status->exit_status.signal_number() == 0) return false;
  return rank.exit_status->exit_status.signal_number() != SIGABRT || rank.code == FailureCode::kNotReported;
}

// Whether `waiting` was in a collective of a group that `other` had not reached.
bool WaitedFor(const RankFacts& waiting, const RankFacts& other, int world_size) {
  return std::any_of(waiting.groups.begin(), waiting.groups.end(), [&](const GroupSeen& own) {
    if (!own.in_flight) return false;
    const auto its = std::find_if(other.groups.begin(), other.groups.end(),
                                  [&](const GroupSeen& group) { return group.id == own.id; });
    // A rank that has left the group of all ranks was a member of it.
    if (its == other.groups.end()) return own.size == static_cast<std::uint32_t>(world_size);
    return its->sequence < own.sequence;
  });
}

// Whether `other` left the group of all ranks while `failed` was still in it, before `failed` failed.
bool HadLeft(const RankFacts& failed, const RankFacts& other, int world_size) {
  if (other.left_ns == 0 || other.left_ns >= failed.failed_ns || FailedByItself(other)) return false;
  return std::any_of(failed.groups.begin(), failed.groups.end(), [&](const GroupSeen& own) {
    return own.size == static_cast<std::uint32_t>(world_size) &&
           std::none_of(other.groups.begin(), other.groups.end(),
                        [&](const GroupSeen& group) { return group.id == own.id; });
  });
}

// The rank that had exited with code 0, or had left the group, while `failed` still communicated with it; the first of
// several.
const RankFacts* LeftBefore(const std::vector<RankFacts>& ranks, const RankFacts& failed, int world_size) {
  const bool communication_failed = failed.code == FailureCode::kPeerLost && failed.culprit < 0;
  const RankFacts* exited = nullptr;
  const RankFacts* left = nullptr;
  for (const RankFacts& other : ranks) {
    if (&other == &failed) continue;
    const bool ended_well = other.exit_status && other.exit_status->exit_status.ok() &&
                            !other.exit_status->after_stop &&
                            (!failed.exit_status || other.exit_status->order <= failed.exit_status->order);
    if (ended_well && (communication_failed || WaitedFor(failed, other, world_size))) {
      if (exited == nullptr || other.exit_status->order < exited->exit_status->order) exited = &other;
    } else if (communication_failed && HadLeft(failed, other, world_size)) {
      if (left == nullptr || other.left_ns < left->left_ns) left = &other;
    }
  }
  return exited != nullptr ? exited : left;
}

RootReason ReasonOf(const RankFacts& rank, FailureCode blamed_for) {
  if (blamed_for == FailureCode::kDifferentCalls) return RootReason::kDifferentCalls;
  if (blamed_for == FailureCode::kNonfinite) return RootReason::kNonfinite;
  if (FailedByItself(rank))
    return rank.exit_status->exit_status.signal_number() != 0 ? RootReason::kSignal : RootReason::kExitCode;
  if (blamed_for == FailureCode::kTimeout) return RootReason::kNotArrived;
  if (blamed_for == FailureCode::kPeerLost) return RootReason::kLeftEarly;
  return rank.exit_status && rank.exit_status->exit_status.signal_number() != 0 ? RootReason::kSignal
                                                                                : RootReason::kExitCode;
}

Root Named(const RankFacts& rank, RootReason reason, int noticed_by) {
  return Root{{rank.local_rank}, rank.rank, reason, noticed_by};
}

}  // namespace

const char* NameOf(RootReason reason) {
  switch (reason) {
    case RootReason::kExitCode:
      return "exit-code";
    case RootReason::kSignal:
      return "signal";
    case RootReason::kLeftEarly:
      return "left-early";
    case RootReason::kDifferentCalls:
      return "different-calls";
    case RootReason::kNonfinite:
      return "nonfinite";
    case RootReason::kNotArrived:
      return "not-arrived";
  }
  return "";
}

std::optional<std::size_t> RootCause(const std::vector<RankExit>& exits) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < exits.size(); ++i) {
    if (exits[i].exit_status.ok()) continue;
    if (!first || Key(exits[i]) < Key(exits[*first])) first = i;
  }
  if (!first || !exits[*first].error_seconds) return first;
  // Invariant: times are compared with `seen_first`, not with the current candidate, so the limit of one second does
  // not add up over several ranks.
  const RankExit& seen_first = exits[*first];
  for (std::size_t i = 0; i < exits.size(); ++i) {
    const RankExit& other = exits[i];
    const bool near = other.after_stop == seen_first.after_stop && other.at - seen_first.at <= kStampsDecideWithin;
    if (other.exit_status.ok() || !near || !other.error_seconds) continue;
    const auto stamp = [](const RankExit& one) { return std::make_tuple(*one.error_seconds, Key(one)); };
    if (stamp(other) < stamp(exits[*first])) first = i;
  }
  return first;
}

void BlameDifferentCalls(std::vector<RankFacts>& ranks) {
  for (RankFacts& rank : ranks) {
    const bool reported = rank.code != FailureCode::kNotReported && rank.code != FailureCode::kPeerLost;
    const bool ended_well = rank.exit_status && rank.exit_status->exit_status.ok() && !rank.exit_status->after_stop;
    if (reported || rank.culprit >= 0 || ended_well) continue;
    // A rank that died of a signal other than SIGABRT failed by itself.
    if (Crashed(rank) && rank.exit_status->exit_status.signal_number() != SIGABRT) continue;
    rank.code = FailureCode::kDifferentCalls;
  }
}

void BlameAwaited(std::vector<RankFacts>& ranks, const LastWait& wait) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const RankFacts* const awaited = FindRank(ranks, wait.awaited);
  if (awaited == nullptr) return;
  const bool ended_well =
      awaited->exit_status && awaited->exit_status->exit_status.ok() && !awaited->exit_status->after_stop;
  const auto its = std::find_if(awaited->groups.begin(), awaited->groups.end(),
                                [&](const GroupSeen& group) { return group.id == wait.group; });
  const bool in_group = its != awaited->groups.end();
  if (ended_well || (!in_group && awaited->left_ns != 0)) return;
  const bool came = in_group && its->sequence >= wait.sequence;
  const std::uint64_t until = wait.at_ns + (came ? 2 : 30) * kSecond;
  for (RankFacts& rank : ranks) {
    const bool waited = std::find(wait.waiting.begin(), wait.waiting.end(), rank.local_rank) != wait.waiting.end();
    const bool after = rank.failed_ns + kSecond >= wait.at_ns && rank.failed_ns <= until;
    if (!waited || !after || rank.code != FailureCode::kPeerLost || rank.culprit >= 0) continue;
    rank.code = FailureCode::kTimeout;
    rank.culprit = wait.awaited;
  }
}

std::optional<Root> RootOf(const std::vector<RankFacts>& ranks, int world_size) {
  std::vector<RankExit> exits;
  for (const RankFacts& rank : ranks) {
    if (rank.exit_status) exits.push_back(*rank.exit_status);
  }
  const auto first = RootCause(exits);
  if (!first) return std::nullopt;
  const int noticed_by = exits[*first].local_rank;
  const RankFacts* at = nullptr;
  for (const RankFacts& rank : ranks) {
    if (rank.local_rank == noticed_by) at = &rank;
  }
  FailureCode blamed_for = FailureCode::kNotReported;
  std::vector<const RankFacts*> path;
  // Terminates: every iteration either returns or follows the blame to another rank of this node, and a rank that was
  // visited before ends the loop.
  for (;;) {
    if (std::find(path.begin(), path.end(), at) != path.end()) {
      // They blame each other: the first to report was not affected by the others' failures.
      const RankFacts& earliest = **std::min_element(
          path.begin(), path.end(), [](const auto* a, const auto* b) { return a->failed_ns < b->failed_ns; });
      // Not null: every rank of the path was left by following its culprit on this node.
      const RankFacts& blamed = *FindRank(ranks, earliest.culprit);
      return Named(blamed, ReasonOf(blamed, earliest.code), noticed_by);
    }
    path.push_back(at);
    if (Crashed(*at)) return Named(*at, RootReason::kSignal, noticed_by);
    if (at->culprit >= 0 && at->culprit != at->rank && at->code != FailureCode::kNotReported) {
      const RankFacts* const blamed = FindRank(ranks, at->culprit);
      if (blamed == nullptr) {
        const RankFacts elsewhere;
        return Root{{}, at->culprit, ReasonOf(elsewhere, at->code), noticed_by};
      }
      blamed_for = at->code;
      at = blamed;
      continue;
    }
    if (at->code == FailureCode::kDifferentCalls && at->culprit < 0) {
      Root root{{}, -1, RootReason::kDifferentCalls, noticed_by};
      for (const RankFacts& rank : ranks) {
        if (rank.code == FailureCode::kDifferentCalls) root.local_ranks.push_back(rank.local_rank);
      }
      root.rank = ranks[static_cast<std::size_t>(root.local_ranks.front())].rank;
      return root;
    }
    if (at->culprit == at->rank && at->code != FailureCode::kNotReported) blamed_for = at->code;
    const RankFacts* const left =
        blamed_for == FailureCode::kNotReported ? LeftBefore(ranks, *at, world_size) : nullptr;
    if (left != nullptr) {
      const bool failed = left->exit_status && !left->exit_status->exit_status.ok() &&
                          left->exit_status->exit_status.signal_number() == 0;
      return Named(*left, failed ? RootReason::kExitCode : RootReason::kLeftEarly, noticed_by);
    }
    return Named(*at, ReasonOf(*at, blamed_for), noticed_by);
  }
}

}  // namespace fulldeck::diagnosis
