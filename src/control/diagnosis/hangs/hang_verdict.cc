#include "diagnosis/hangs/hang_verdict.h"

#include <algorithm>
#include <set>

namespace fulldeck::diagnosis {
namespace {

using base::Duration;
using base::TimePoint;
using std::chrono::milliseconds;

// A collective that takes longer than this is examined closely; a healthy one is over long before.
constexpr Duration kStall = milliseconds(500);
constexpr double kBusyShare = 0.05;  // of a CPU
// Readings of a card are one second apart and cover the preceding second.
constexpr Duration kCardIsFresh = std::chrono::seconds(3);
constexpr std::uint64_t kIoOfLife = 16 * 1024;  // bytes in the observed window
constexpr double kFaultsOfLife = 20;            // per second: code that processes data touches new memory
constexpr std::size_t kPlacesInOnePlace = 3;  // a polling thread is sampled in its system call, before it and after it
constexpr double kSwitchesOfLife = 2;         // per second: I/O that progresses wakes the main thread
constexpr Duration kMinObserved = milliseconds(1'400);
constexpr Duration kSlack =
    milliseconds(1'000);  // a window starts this much before the period to cover, because samples are apart
constexpr Duration kMinBusyWindow = milliseconds(450);  // long enough to request a stack
constexpr Duration kBetweenStacks = milliseconds(1'000);
constexpr std::size_t kMaxMoments = 512;
constexpr std::size_t kStepsKept = 64;
constexpr std::uint64_t kFirstCalls = 16;

bool IsMessage(const wire::Collective& call) {
  return call.operation == FULLDECK_BOARD_SEND || call.operation == FULLDECK_BOARD_RECEIVE;
}

CallSeen Seen(const wire::Collective& call, std::uint64_t sequence) {
  CallSeen seen{call.name, call.group, sequence, 0, 0, 0, 0};
  // The operation on the board belongs to the collective that started last.
  if (sequence == call.sequence && call.operation != FULLDECK_BOARD_OTHER_OPERATION) {
    seen.operation = call.operation;
    seen.datatype = call.datatype;
    seen.count = call.count;
    seen.bytes = call.bytes;
  }
  return seen;
}

// Drops every second sample of the older half. Samples are sums since the start, so the others stay valid.
template <typename Moments>
void ThinOut(Moments& moments) {
  Moments kept;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    if (i % 2 == 0 || i > moments.size() / 2) kept.push_back(std::move(moments[i]));
  }
  moments = std::move(kept);
}

bool MayTakeLong(wire::Phase phase) {
  return phase == wire::Phase::kStarting || phase == wire::Phase::kInit || phase == wire::Phase::kLoading ||
         phase == wire::Phase::kCompiling || phase == wire::Phase::kCheckpoint || phase == wire::Phase::kValidation;
}

}  // namespace

const char* NameOf(Evidence evidence) {
  switch (evidence) {
    case Evidence::kNone:
      return "none";
    case Evidence::kStopped:
      return "stopped";
    case Evidence::kDeadlocked:
      return "deadlocked";
    case Evidence::kMismatched:
      return "mismatched";
    case Evidence::kLeftCollective:
      return "left-collective";
    case Evidence::kSpinning:
      return "spinning";
    case Evidence::kSleeping:
      return "sleeping";
    case Evidence::kBlockedIo:
      return "blocked-io";
  }
  return "none";
}

Duration HangJudge::MedianStep() const {
  if (steps_.empty()) return Duration(0);
  std::vector<Duration> sorted(steps_.begin(), steps_.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  return sorted[sorted.size() / 2];
}

void HangJudge::Remember(TimePoint now, const std::vector<RankNow>& ranks) {
  known_.resize(ranks.size());
  for (auto& [id, group] : groups_) {
    for (auto& [rank, member] : group) member.present = false;
  }
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    const RankNow& rank = ranks[index];
    Known& known = known_[index];
    const int local_rank = static_cast<int>(index);
    if (rank.loop) {
      if (rank.loop->phase != known.phase) known.moved = now;
      if (rank.loop->step != known.step && rank.loop->step_at_ns != 0) {
        known.moved = now;
        if (rank.loop->last_step_ns > 0) steps_.emplace_back(rank.loop->last_step_ns);
      }
      known.phase = rank.loop->phase;
      known.step = rank.loop->step;
    }
    for (const wire::Collective& call : rank.groups) {
      auto [found, is_new] = groups_[call.group].try_emplace(local_rank);
      Member& member = found->second;
      member.present = true;
      const bool changed = is_new || call.sequence != member.call.sequence || call.completed != member.call.completed;
      if (changed) {
        // If a program reports no steps, the time between two collectives is used instead.
        if (!is_new && !rank.loop && call.sequence > member.call.sequence && member.changed != TimePoint()) {
          const std::uint64_t calls = call.sequence - member.call.sequence;
          steps_.push_back((now - member.changed) /
                           static_cast<std::int64_t>(std::min<std::uint64_t>(calls, 1U << 20)));
        }
        if (call.sequence != member.call.sequence) member.changed = now;
        known.moved = now;
        const TimePoint began{Duration(static_cast<std::int64_t>(call.since_ns))};
        // Invariant: an incorrect start time on the board never makes a wait look longer. It is used only if the call
        // is in flight and the time is at most 2 s in the past; otherwise the wait counts from this sample.
        member.since = call.in_flight() && began < now && now - began < std::chrono::seconds(2) ? began : now;
      }
      member.call = call;
    }
    if (rank.life == RankLife::kEnded || rank.life == RankLife::kFailed) known.moments.clear();
  }
  while (steps_.size() > kStepsKept) steps_.pop_front();
  // Drop groups that no living rank is in any more.
  for (auto group = groups_.begin(); group != groups_.end();) {
    const bool used =
        std::any_of(group->second.begin(), group->second.end(), [](const auto& entry) { return entry.second.present; });
    group = used ? std::next(group) : groups_.erase(group);
  }
}

Duration HangJudge::Waits(int local_rank, const Member& member, const std::vector<RankNow>& ranks,
                          TimePoint now) const {
  if (!member.present || !member.call.in_flight()) return Duration(0);
  if (ranks[static_cast<std::size_t>(local_rank)].life != RankLife::kThere) return Duration(0);
  return now - member.since;
}

std::optional<int> HangJudge::LocalRankOf(const Group& group, std::uint32_t size, std::uint32_t rank) const {
  for (const auto& [local_rank, member] : group) {
    if (member.call.rank == rank) return local_rank;
  }
  if (size != static_cast<std::uint32_t>(run_.world_size)) return std::nullopt;
  const int local_rank = static_cast<int>(rank) - run_.first_rank;
  return local_rank >= 0 && local_rank < run_.local_ranks ? std::optional(local_rank) : std::nullopt;
}

std::vector<int> HangJudge::MissedBy(int local_rank, const Group& group) const {
  const wire::Collective& call = group.at(local_rank).call;
  std::vector<int> missing;
  if (IsMessage(call)) {
    const auto peer =
        call.root >= 0 ? LocalRankOf(group, call.size, static_cast<std::uint32_t>(call.root)) : std::nullopt;
    if (peer && *peer != local_rank) missing.push_back(*peer);
    return missing;
  }
  for (std::uint32_t rank = 0; rank < call.size && rank < static_cast<std::uint32_t>(run_.world_size); ++rank) {
    if (rank == call.rank) continue;
    const auto other = LocalRankOf(group, call.size, rank);
    if (!other) continue;
    const auto member = group.find(*other);
    // Started is enough: the rank is in the collective or past it.
    if (member == group.end() || member->second.call.sequence <= call.completed) missing.push_back(*other);
  }
  return missing;
}

bool HangJudge::SomeAreElsewhere(const Group& group) const {
  return run_.world_size > run_.local_ranks && group.begin()->second.call.size > group.size();
}

Duration HangJudge::LimitFor(const RankNow& rank, const Member& waiting) const {
  const wire::Phase phase = rank.loop ? rank.loop->phase : wire::Phase::kNotReported;
  const bool reported = phase != wire::Phase::kNotReported;
  // The adapters report phases of scripts without knowing what the script does between two steps.
  Duration limit = IsRecorded(waiting.call.name) ? limits_.unknown : limits_.known;
  // Without reported steps: a model wrapper makes a few collectives of its own before the first step.
  const bool before_first_step = reported ? rank.loop->step_at_ns == 0
                                          : waiting.call.completed < (IsRecorded(waiting.call.name) ? kFirstCalls : 2);
  if (before_first_step) limit = std::max(limit, limits_.first);
  if (MayTakeLong(phase)) limit = std::max(limit, limits_.slow);
  return std::max(limit, 5 * MedianStep());
}

// Invariant: a window never begins before the rank's last visible progress (known.moved), so evidence from before it is
// never used.
HangJudge::Window HangJudge::Since(const Known& known, TimePoint from) const {
  Window window;
  const auto first = std::find_if(known.moments.begin(), known.moments.end(),
                                  [&](const Moment& moment) { return moment.at >= std::max(from, known.moved); });
  if (first == known.moments.end()) return window;
  window.span = known.moments.back().at - first->at;
  std::set<std::string> places;
  for (auto moment = first; moment != known.moments.end(); ++moment) {
    const ProcessSample& process = moment->process;
    window.traced = window.traced || process.traced;
    // Exclude the time in which it printed its stack; we caused that.
    if (moment == first || std::any_of(known.stacks.begin(), known.stacks.end(), [&](const StackSeen& stack) {
          return moment->at > stack.polled && std::prev(moment)->at <= stack.seen;
        })) {
      continue;
    }
    const ProcessSample& before = std::prev(moment)->process;
    places.insert(process.exact_place);
    window.seconds += std::chrono::duration<double>(moment->at - std::prev(moment)->at).count();
    window.busy += std::chrono::duration<double>(process.cpu - before.cpu).count();
    window.main_busy += std::chrono::duration<double>(process.main_thread - before.main_thread).count();
    window.io_bytes += process.io_bytes - std::min(before.io_bytes, process.io_bytes);
    window.faults += process.page_faults - std::min(before.page_faults, process.page_faults);
    window.switches += process.switches - std::min(before.switches, process.switches);
    window.io = window.io || process.wait.kind == WaitKind::kIo;
    window.workers_io = window.workers_io || process.a_worker_in_io;
    window.sleeps = window.sleeps && process.wait.kind == WaitKind::kSleep;
    window.unknown = window.unknown || process.wait.kind == WaitKind::kUnknown;
    window.all_in_locks = window.all_in_locks && process.all_in_locks;
  }
  window.places = places.size();
  return window;
}

HangJudge::Finding HangJudge::Examine(int local_rank, const RankNow& rank, TimePoint now, Duration limit,
                                      Duration waited) {
  const Finding finding = ExamineProcess(local_rank, rank, now, limit, waited);
  // The card computes while the main thread spins or sleeps in the driver until a kernel ends. Evidence is collected
  // anyway, so that the verdict on a rank that has just stopped working is not delayed.
  const bool card_works = rank.card_worked && now - *rank.card_worked <= kCardIsFresh && waited < limits_.io;
  return card_works ? Finding() : finding;
}

HangJudge::Finding HangJudge::ExamineProcess(int local_rank, const RankNow& rank, TimePoint now, Duration limit,
                                             Duration waited) {
  const Window near = Since(known_[static_cast<std::size_t>(local_rank)], now - limit);
  if (near.traced || near.span < kMinBusyWindow || near.seconds <= 0 || near.io_bytes >= kIoOfLife) return {};
  if (near.main_busy / near.seconds < kBusyShare) return ExamineIdle(local_rank, rank, now, limit);
  // Code that processes data touches new memory or waits for a file or socket from time to time.
  if (near.io || static_cast<double>(near.faults) / near.seconds >= kFaultsOfLife) return {};
  if (!SpinsInPlace(local_rank, now, limit, waited)) return {};
  return {Evidence::kSpinning, limit, false};
}

HangJudge::Finding HangJudge::ExamineIdle(int local_rank, const RankNow& rank, TimePoint now, Duration limit) const {
  const Known& known = known_[static_cast<std::size_t>(local_rank)];
  const auto rate = [](double amount, const Window& window) { return amount / std::max(window.seconds, 1e-3); };

  // This evidence is conclusive, so it needs no long observation. A rank inside a collective of another group may be
  // released by that group's threads.
  const Duration shown = std::max(limits_.shown, 5 * MedianStep());
  const Window near = Since(known, now - shown);
  const bool in_a_call = std::any_of(rank.groups.begin(), rank.groups.end(),
                                     [](const wire::Collective& call) { return call.in_flight(); });
  if (near.span >= kMinObserved && near.seconds > 0 && near.all_in_locks && near.places == 1 && near.switches == 0 &&
      rate(near.busy, near) < kBusyShare && !in_a_call) {
    return {Evidence::kDeadlocked, shown, false};
  }

  const Duration asleep = std::max(limit, limits_.sleeping);
  const Window sleep = Since(known, now - asleep - kSlack);
  // Also applies if its other threads or children work: the main thread may be waiting for them.
  const bool waits_for_something =
      sleep.io || sleep.workers_io || sleep.unknown || rate(sleep.busy, sleep) >= kBusyShare;
  if (!waits_for_something) {
    if (sleep.traced || sleep.span < asleep || sleep.io_bytes >= kIoOfLife || sleep.places > kPlacesInOnePlace)
      return {};
    return {Evidence::kSleeping, asleep, false};
  }

  const Duration blocked = std::max(limit, limits_.io);
  const Window io = Since(known, now - blocked - kSlack);
  if (io.traced || io.span < blocked || io.io_bytes >= kIoOfLife || rate(io.main_busy, io) >= kBusyShare) return {};
  // A main thread that polls for the end of a thread or child wakes up without any I/O progress.
  const bool polls = io.workers_io && io.sleeps;
  if (!polls && rate(static_cast<double>(io.switches), io) >= kSwitchesOfLife) return {};
  const bool by_io = io.io || io.workers_io;
  return {by_io ? Evidence::kBlockedIo : Evidence::kSleeping, blocked, by_io};
}

// Distinguishes computing from spinning by the stack.
bool HangJudge::SpinsInPlace(int local_rank, TimePoint now, Duration limit, Duration waited) {
  Known& known = known_[static_cast<std::size_t>(local_rank)];
  std::deque<StackSeen>& stacks = known.stacks;
  // A stack that was requested before the last progress is not evidence either.
  while (!stacks.empty() && stacks.front().polled < known.moved) stacks.pop_front();
  const std::size_t seen = stacks.size();
  const bool same = seen >= 2 && stacks[seen - 1].stack == stacks[seen - 2].stack;
  const Duration between = std::max<Duration>(kBetweenStacks, limit / 4);
  // Old stacks are not evidence about the present.
  const bool fresh = seen > 0 && now - stacks.back().seen <= between;
  // If its stack cannot be read, the limit is three times as long.
  if (same && fresh && (stacks.back().stack != 0 || waited >= 3 * limit)) return true;
  // Back off: a rank that makes progress is asked for its stack less and less often.
  const int times = static_cast<int>(std::min<std::size_t>(seen, 6));
  const Duration pause = seen < 2 || same ? between : kBetweenStacks * (1 << times);
  const bool early = waited < limit * 2 / 5;
  if (!early && (seen == 0 || now - stacks.back().seen >= pause)) wants_stack_ = local_rank;
  return false;
}

void HangJudge::OnStackRequested(int local_rank, TimePoint now) {
  known_[static_cast<std::size_t>(local_rank)].polled = now;
}

void HangJudge::SawStack(int local_rank, std::uint64_t stack, TimePoint now) {
  Known& known = known_[static_cast<std::size_t>(local_rank)];
  known.stacks.push_back({known.polled, now, stack});
}

// A rank that Gloo ended because of a too long message has not reported its collective, which differs from another
// rank's. Once all other members have reported theirs: if those are equal, the ended rank's collective is the odd one;
// if some are longer than others, it is one of the short ones. Returns the number of members whose collective remains
// unknown.
std::size_t HangJudge::AddCallThatEndedItsRank(const Group& group, const std::vector<RankNow>& ranks,
                                               Kinds& kinds) const {
  int ended = -1;
  std::size_t reported = 0;
  for (const auto& [local_rank, member] : group) {
    const bool reports = std::any_of(kinds.begin(), kinds.end(), [&](const auto& kind) {
      return std::find(kind.second.begin(), kind.second.end(), local_rank) != kind.second.end();
    });
    reported += reports ? 1 : 0;
    if (!reports && ranks[static_cast<std::size_t>(local_rank)].sent_too_much) ended = local_rank;
  }
  const wire::Collective& call = group.at(kinds.begin()->second.front()).call;
  if (ended < 0 || call.operation == FULLDECK_BOARD_MEETING) return 0;
  const std::size_t unknown = call.size - std::min<std::size_t>(reported, call.size);
  if (unknown != 1) return unknown;
  constexpr std::uint64_t kOfItsOwn = 0;
  if (kinds.size() == 1) {
    kinds[kOfItsOwn].push_back(ended);
    return 0;
  }
  const auto bytes_of = [&](const auto& kind) { return group.at(kind.second.front()).call.bytes; };
  const auto [shortest, longest] = std::minmax_element(
      kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) { return bytes_of(a) < bytes_of(b); });
  if (kinds.size() != 2 || bytes_of(*shortest) == bytes_of(*longest)) return unknown;
  shortest->second.push_back(ended);
  return 0;
}

std::optional<HangVerdict> HangJudge::Mismatch(const std::vector<RankNow>& ranks, TimePoint now,
                                               bool after_failure) const {
  for (const auto& [id, group] : groups_) {
    // Collectives in flight, by sequence number. All with the same number must be equal.
    std::map<std::uint64_t, Kinds> calls;
    std::map<std::uint64_t, std::size_t> unreported;  // collectives whose details are not reported yet
    for (const auto& [local_rank, member] : group) {
      const wire::Collective& call = member.call;
      const RankLife life = ranks[static_cast<std::size_t>(local_rank)].life;
      const bool there = life == RankLife::kThere || life == RankLife::kFailed;
      if (after_failure && ranks[static_cast<std::size_t>(local_rank)].sent_too_much) continue;
      const bool reported = call.operation != 0 && call.operation != FULLDECK_BOARD_OTHER_OPERATION && !IsMessage(call);
      if (there && reported && call.sequence > 0 && (call.in_flight() || after_failure)) {
        calls[call.sequence][call.fingerprint].push_back(local_rank);
      } else if (there && call.in_flight() && !IsMessage(call)) {
        ++unreported[call.sequence];
      }
    }
    if (after_failure && calls.size() == 1) {
      auto& [sequence, kinds] = *calls.begin();
      const std::size_t unknown = AddCallThatEndedItsRank(group, ranks, kinds);
      if (unknown > 0) unreported[sequence] = std::max(unreported[sequence], unknown);
    }
    for (const auto& [sequence, kinds] : calls) {
      if (kinds.size() < 2) continue;
      const auto fewer = [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : a.second.back() < b.second.back();
      };
      const auto most = std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : a.second.front() > b.second.front();
      });
      const auto least = std::min_element(kinds.begin(), kinds.end(), fewer);
      const auto odd = least == most ? std::find_if(kinds.begin(), kinds.end(),
                                                    [&](const auto& kind) { return kind.first != most->first; })
                                     : least;
      // The odd one is known only when the others have a majority; pending ranks report shortly.
      const auto unknown = unreported.find(sequence);
      if (unknown != unreported.end() && most->second.size() <= odd->second.size() + unknown->second) continue;
      HangVerdict verdict;
      verdict.kind = VerdictKind::kDesync;
      verdict.evidence = Evidence::kMismatched;
      verdict.culprit = odd->second.front();
      verdict.awaited = Seen(group.at(most->second.front()).call, sequence);
      verdict.culprits_call = Seen(group.at(verdict.culprit).call, sequence);
      for (const auto& [fingerprint, members] : kinds) {
        for (const int local_rank : members) {
          if (local_rank == verdict.culprit) continue;
          if (fingerprint == odd->first) verdict.also_missing.push_back(local_rank);
          verdict.waiting.push_back(local_rank);
          verdict.waited = std::max(verdict.waited, now - group.at(local_rank).since);
        }
      }
      std::sort(verdict.waiting.begin(), verdict.waiting.end());
      return verdict;
    }
  }
  return std::nullopt;
}

std::optional<HangVerdict> HangJudge::Differing(TimePoint now, const std::vector<RankNow>& ranks) {
  Remember(now, ranks);
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    if (!ranks[index].sent_too_much) continue;
    // The rank may have ended before it was seen in the group.
    for (auto& [id, group] : groups_) {
      const wire::Collective call = group.begin()->second.call;
      if (call.size != static_cast<std::uint32_t>(run_.world_size)) continue;
      const auto [member, is_new] = group.try_emplace(static_cast<int>(index));
      if (!is_new) continue;
      member->second.call.group = id;
      member->second.call.name = call.name;
      member->second.since = now;
    }
  }
  return Mismatch(ranks, now, true);
}

// No alarm without all of: a wait of at least the limit, a culprit that does not wait for another rank (or a cycle),
// and evidence that lasted as long as the limit. Everything else is at most kWaiting. The order of the checks matters:
// ranks in different collectives also wait for each other, so Mismatch comes before the search for suspects.
HangVerdict HangJudge::Judge(TimePoint now, const std::vector<RankNow>& ranks) {
  Remember(now, ranks);
  wants_stack_.reset();
  wants_threads_.clear();
  // Determine which rank waits, in which group, and for which ranks.
  std::map<int, std::uint64_t> waits_in;
  std::map<int, std::vector<int>> waits_for;
  for (const auto& [id, group] : groups_) {
    for (const auto& [local_rank, member] : group) {
      const Duration waited = Waits(local_rank, member, ranks, now);
      if (waited < kStall) continue;
      // If it waits in two groups, the older call counts.
      const auto before = waits_in.find(local_rank);
      if (before != waits_in.end() && groups_.at(before->second).at(local_rank).since <= member.since) continue;
      waits_in[local_rank] = id;
      waits_for[local_rank] = MissedBy(local_rank, group);
    }
  }
  stalled_ = !waits_in.empty();
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    Known& known = known_[index];
    if (!stalled_) {
      known.moments.clear();
      known.stacks.clear();
    } else if (ranks[index].process) {
      known.moments.push_back({now, *ranks[index].process});
      if (known.moments.size() > kMaxMoments) ThinOut(known.moments);
    }
  }
  if (!stalled_) return {};
  const Duration shown = std::max(limits_.shown, 5 * MedianStep());

  if (auto differing = Mismatch(ranks, now, false)) {
    return differing->waited < shown ? HangVerdict() : *differing;
  }

  // Stopped ranks hold up others even inside a collective. After them, suspect ranks that do not wait themselves: every
  // chain of waiting ranks ends at one.
  std::vector<Suspect> suspects;
  const auto suspect = [&](int local_rank, int waiter) {
    for (Suspect& known : suspects) {
      if (known.local_rank != local_rank) continue;
      const auto since = [&](int rank) { return groups_.at(waits_in.at(rank)).at(rank).since; };
      if (since(waiter) < since(known.waiter)) known = {local_rank, waits_in.at(waiter), waiter};
      return;
    }
    suspects.push_back({local_rank, waits_in.at(waiter), waiter});
  };
  for (const auto& [waiter, missing] : waits_for) {
    const Group& group = groups_.at(waits_in.at(waiter));
    for (const int local_rank : missing) {
      // Includes a rank that is still in a collective that the others have completed: all have arrived there, so it
      // waits for none.
      const auto its_own = waits_for.find(local_rank);
      if (its_own == waits_for.end() || its_own->second.empty()) suspect(local_rank, waiter);
    }
    for (const auto& [local_rank, member] : group) {
      const RankLife life = ranks[static_cast<std::size_t>(local_rank)].life;
      if (life == RankLife::kStopped && member.call.completed <= group.at(waiter).call.completed) {
        suspect(local_rank, waiter);
      }
    }
  }

  HangVerdict verdict;
  verdict.kind = VerdictKind::kWaiting;
  for (const auto& [waiter, id] : waits_in) {
    verdict.waiting.push_back(waiter);
    verdict.waited = std::max(verdict.waited, now - groups_.at(id).at(waiter).since);
  }
  const auto longest = std::max_element(waits_in.begin(), waits_in.end(), [&](const auto& a, const auto& b) {
    return groups_.at(a.second).at(a.first).since > groups_.at(b.second).at(b.first).since;
  });
  const Member& oldest = groups_.at(longest->second).at(longest->first);
  verdict.awaited = Seen(oldest.call, oldest.call.completed + 1);

  if (suspects.empty()) return WithoutSuspect(verdict, longest->second, waits_for, ranks, now, shown);

  const auto rank_of_life = [&](int local_rank) {  // most certain first
    const RankLife life = ranks[static_cast<std::size_t>(local_rank)].life;
    return life == RankLife::kEnded ? 0 : life == RankLife::kStopped ? 1 : 2;
  };
  const auto call_of = [&](const Suspect& one) -> std::uint64_t {
    const Group& group = groups_.at(one.group);
    const auto member = group.find(one.local_rank);
    return member == group.end() ? 0 : member->second.call.sequence;
  };
  // Total order (the local rank is last), so that the same samples give the same culprit.
  std::stable_sort(suspects.begin(), suspects.end(), [&](const Suspect& a, const Suspect& b) {
    const int life_a = rank_of_life(a.local_rank);
    const int life_b = rank_of_life(b.local_rank);
    if (life_a != life_b) return life_a < life_b;
    if (a.group == b.group && call_of(a) != call_of(b)) return call_of(a) < call_of(b);
    const TimePoint moved_a = known_[static_cast<std::size_t>(a.local_rank)].moved;
    const TimePoint moved_b = known_[static_cast<std::size_t>(b.local_rank)].moved;
    return moved_a != moved_b ? moved_a < moved_b : a.local_rank < b.local_rank;
  });
  if (std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& one) {
        return ranks[static_cast<std::size_t>(one.local_rank)].life == RankLife::kFailed;
      })) {
    return {};  // the failed rank ends the run anyway
  }

  const Suspect chosen = suspects.front();
  const Member& waiter = groups_.at(chosen.group).at(chosen.waiter);
  verdict.culprit = chosen.local_rank;
  // It may itself be in a collective that the others have completed.
  std::erase(verdict.waiting, chosen.local_rank);
  verdict.awaited = Seen(waiter.call, waiter.call.completed + 1);
  verdict.waited = now - waiter.since;
  for (std::size_t i = 1; i < suspects.size(); ++i) verdict.also_missing.push_back(suspects[i].local_rank);
  std::sort(verdict.also_missing.begin(), verdict.also_missing.end());
  const Group& group = groups_.at(chosen.group);
  if (const auto own = group.find(chosen.local_rank); own != group.end() && own->second.call.sequence > 0) {
    verdict.culprits_call = Seen(own->second.call, own->second.call.sequence);
  }
  const RankNow& rank = ranks[static_cast<std::size_t>(chosen.local_rank)];
  if (rank.loop) verdict.culprits_phase = rank.loop->phase;
  const Known& known = known_[static_cast<std::size_t>(chosen.local_rank)];
  if (!known.moments.empty()) {
    const ProcessSample& process = known.moments.back().process;
    verdict.place = process.place;
    verdict.wait = process.wait;
    verdict.io = process.wait.kind == WaitKind::kIo || process.a_worker_in_io;
    verdict.traced = process.traced;
  }
  for (const Suspect& one : suspects) {
    if (ranks[static_cast<std::size_t>(one.local_rank)].life == RankLife::kThere) {
      wants_threads_.push_back(one.local_rank);
    }
  }
  if (verdict.waited < shown) verdict.kind = VerdictKind::kNothing;
  return WithEvidence(std::move(verdict), suspects, ranks, now, shown);
}

HangVerdict HangJudge::WithEvidence(HangVerdict verdict, const std::vector<Suspect>& suspects,
                                    const std::vector<RankNow>& ranks, TimePoint now, Duration shown) {
  const auto waiting = [&] { return verdict.kind == VerdictKind::kNothing ? HangVerdict() : verdict; };
  const RankLife life = ranks[static_cast<std::size_t>(verdict.culprit)].life;
  if (life == RankLife::kEnded || life == RankLife::kStopped) {
    // A debugger stops the process that it is attached to.
    if (verdict.waited < shown || (life == RankLife::kStopped && verdict.traced)) return waiting();
    verdict.kind = life == RankLife::kEnded ? VerdictKind::kEnded : VerdictKind::kStopped;
    verdict.evidence = life == RankLife::kEnded ? Evidence::kLeftCollective : Evidence::kStopped;
    return verdict;
  }
  // Invariant: there must be evidence against every suspect. While one of them works, the others may be waiting for it.
  Finding against;
  Duration limit{0};
  for (const Suspect& one : suspects) {
    const RankNow& rank = ranks[static_cast<std::size_t>(one.local_rank)];
    const Member& held = groups_.at(one.group).at(one.waiter);
    const Finding finding = Examine(one.local_rank, rank, now, LimitFor(rank, held), verdict.waited);
    if (finding.evidence == Evidence::kNone) return waiting();
    limit = std::max(limit, finding.limit);
    if (one.local_rank == verdict.culprit) against = finding;
  }
  const TimePoint moved = known_[static_cast<std::size_t>(verdict.culprit)].moved;
  // The evidence must also be as old as the limit; kStall allows for the start of the sampling.
  if (verdict.waited < limit || now - moved < limit - kStall) return waiting();
  verdict.kind = VerdictKind::kHang;
  verdict.evidence = against.evidence;
  verdict.io = against.io;
  return verdict;
}

// Every awaited rank waits, too.
HangVerdict HangJudge::WithoutSuspect(HangVerdict verdict, std::uint64_t id,
                                      const std::map<int, std::vector<int>>& waits_for,
                                      const std::vector<RankNow>& ranks, TimePoint now, Duration shown) {
  if (verdict.waited < shown) return {};
  const Group& group = groups_.at(id);
  // A cycle: ranks make the collectives of several groups in different order. The culprit is the rank that most others
  // wait for.
  std::map<int, int> wanted;
  for (const auto& [waiter, missing] : waits_for) {
    for (const int local_rank : missing) ++wanted[local_rank];
  }
  if (!wanted.empty()) {
    const auto odd = std::max_element(wanted.begin(), wanted.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [other_id, other] : groups_) {
      const auto member = other.find(odd->first);
      if (member == other.end() || !member->second.call.in_flight()) continue;
      verdict.culprit = odd->first;
      verdict.culprits_call = Seen(member->second.call, member->second.call.completed + 1);
    }
    if (verdict.culprit < 0) return verdict;
    for (const auto& [waiter, missing] : waits_for) {
      if (std::find(missing.begin(), missing.end(), verdict.culprit) == missing.end()) continue;
      for (const auto& [other_id, other] : groups_) {
        const auto member = other.find(waiter);
        if (member == other.end() || !member->second.call.in_flight()) continue;
        if (other_id == verdict.culprits_call->group_id) continue;
        verdict.awaited = Seen(member->second.call, member->second.call.completed + 1);
      }
    }
    std::erase(verdict.waiting, verdict.culprit);
    // Overlapping collectives of several groups can look like this briefly, so the picture must not change for a while.
    Duration still = verdict.waited;
    for (const auto& [waiter, missing] : waits_for) {
      still = std::min(still, now - known_[static_cast<std::size_t>(waiter)].moved);
    }
    if (still >= shown) {
      verdict.kind = VerdictKind::kDesync;
      verdict.evidence = Evidence::kDeadlocked;
    }
    return verdict;
  }
  if (SomeAreElsewhere(group)) {
    const bool all_wait = std::all_of(group.begin(), group.end(), [&](const auto& entry) {
      return Waits(entry.first, entry.second, ranks, now) >= kStall;
    });
    if (all_wait) verdict.kind = VerdictKind::kElsewhere;
    return verdict;
  }
  // All ranks are in the collective. Its transport may be slow: it is a hang only if none of them is active.
  Duration limit{0};
  for (const auto& [local_rank, member] : group) {
    const RankNow& rank = ranks[static_cast<std::size_t>(local_rank)];
    const Finding finding =
        Examine(local_rank, rank, now, std::max(limits_.all_in_call, 5 * MedianStep()), Duration(0));
    wants_stack_.reset();
    if (finding.evidence == Evidence::kNone || finding.evidence == Evidence::kSpinning) return verdict;
    limit = std::max(limit, finding.limit);
    verdict.io = verdict.io || finding.io;
  }
  if (verdict.waited >= limit) {
    verdict.kind = VerdictKind::kHang;
    verdict.evidence = Evidence::kDeadlocked;
  }
  return verdict;
}

}  // namespace fulldeck::diagnosis
