// What people read of a verdict.
#include <algorithm>
#include <cstdio>

#include "diagnosis/hang_verdict.h"

namespace fulldeck::diagnosis {
namespace {

std::string Seconds(base::Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string Ranks(const std::vector<int>& local_ranks, int first_rank) {
  return (local_ranks.size() == 1 ? "rank " : "ranks ") + RankList(local_ranks, first_rank);
}

std::string NameOf(int local_rank, const std::vector<std::string>& names, int first_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return local_rank >= 0 && index < names.size() ? names[index] : "rank " + std::to_string(first_rank + local_rank);
}

std::string OfGroup(const CallSeen& call) {
  return call.group.empty() ? "" : " of group " + call.group;
}

std::string Waiting(const HangVerdict& verdict, int first_rank) {
  return Ranks(verdict.waiting, first_rank) + (verdict.waiting.size() == 1 ? " has" : " have");
}

bool IsMeeting(const HangVerdict& verdict) {
  return verdict.awaited.operation == FULLDECK_BOARD_MEETING;
}

std::string LastOf(const HangVerdict& verdict) {
  if (!verdict.culprits_call) {
    return IsMeeting(verdict) ? "it has not come there" : "it has made no call of that group";
  }
  // What torch's recorder tells is a tenth of a second old at most, and that of a stopped rank older.
  return (IsRecorded(verdict.culprits_call->group) ? "its last call seen was " : "its last call was ") +
         InWords(*verdict.culprits_call);
}

std::string HowItIs(const HangVerdict& verdict) {
  std::string text;
  switch (verdict.lifeless) {
    case Lifeless::kIdle:
      text = "it sleeps in one place: no processor time, nothing read, nothing written";
      break;
    case Lifeless::kSpinning:
      text = "it spins in place: it takes processor time, reads and writes nothing, and its stack stays the same";
      break;
    case Lifeless::kInKernel:
      text = "the kernel holds it (state D): a disk, a network file system or a driver does not answer";
      break;
    case Lifeless::kNot:
      break;
  }
  if (!verdict.place.empty() && verdict.lifeless != Lifeless::kSpinning) text += " (" + verdict.place + ")";
  if (verdict.culprits_phase != wire::Phase::kNotTold) {
    text += std::string(", in phase ") + wire::PhaseName(verdict.culprits_phase);
  }
  return text;
}

}  // namespace

std::string RankList(const std::vector<int>& local_ranks, int first_rank) {
  std::string text;
  for (std::size_t i = 0; i < local_ranks.size();) {
    std::size_t end = i;
    while (end + 1 < local_ranks.size() && local_ranks[end + 1] == local_ranks[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(first_rank + local_ranks[i]);
    if (end > i) text += (end == i + 1 ? ", " : "–") + std::to_string(first_rank + local_ranks[end]);
    i = end + 1;
  }
  return text;
}

std::string InWords(const CallSeen& call) {
  std::string text = call.operation != 0 ? wire::OperationName(call.operation) : "collective";
  text += " #" + std::to_string(call.sequence);
  if (call.operation != 0 && call.datatype != FULLDECK_BOARD_NO_DATA && call.count > 0) {
    text += std::string(" (") + wire::DatatypeName(call.datatype) + " × " + std::to_string(call.count) + ")";
  }
  return text;
}

std::vector<std::string> InWords(const HangVerdict& verdict, const std::vector<std::string>& names, int first_rank,
                                 const std::string& host) {
  const std::string culprit = verdict.culprit >= 0 ? NameOf(verdict.culprit, names, first_rank) : "";
  const std::string where = InWords(verdict.awaited) + OfGroup(verdict.awaited);
  const std::string waited = " waited " + Seconds(verdict.waited) + " in " + where;
  std::vector<std::string> lines;
  switch (verdict.kind) {
    case VerdictKind::kNothing:
    case VerdictKind::kWaiting:
      return lines;
    case VerdictKind::kHang:
      if (verdict.culprit < 0) {
        lines.push_back("HANG: all ranks of group " + verdict.awaited.group + " are in " + InWords(verdict.awaited) +
                        " for " + Seconds(verdict.waited) +
                        ", and none of them does anything: no rank is missing, what connects them does not move");
        return lines;
      }
      lines.push_back("HANG: " + culprit + " shows no life; " + Waiting(verdict, first_rank) + waited + " for it, " +
                      LastOf(verdict));
      lines.push_back(HowItIs(verdict));
      break;
    case VerdictKind::kDesync:
      lines.push_back("DESYNC: " + culprit + " is in " + InWords(*verdict.culprits_call) +
                      OfGroup(*verdict.culprits_call) + ", while " + Ranks(verdict.waiting, first_rank) +
                      (verdict.waiting.size() == 1 ? " is in " : " are in ") + where + " for " +
                      Seconds(verdict.waited));
      lines.emplace_back(
          verdict.awaited.group_id == verdict.culprits_call->group_id
              ? "all ranks of a group must make the same calls in the same order: this one skipped a call, or made "
                "another"
              : "the calls of several groups come in another order on this rank: each side waits for the other");
      break;
    case VerdictKind::kStopped:
      lines.push_back("HANG: " + culprit + " is stopped by a signal; " + Waiting(verdict, first_rank) + waited +
                      " for it, " + LastOf(verdict));
      break;
    case VerdictKind::kEnded:
      lines.push_back("HANG: " + culprit + " has ended; " + Waiting(verdict, first_rank) + waited + " for it, " +
                      LastOf(verdict));
      lines.emplace_back(IsMeeting(verdict)
                             ? "it ended without an error before the group was made: all ranks must make it"
                             : "it ended without an error before the others were done: do all ranks "
                               "get the same number of batches?");
      break;
    case VerdictKind::kElsewhere:
      lines.push_back("all ranks of host " + host + " wait: " + Waiting(verdict, first_rank) + waited +
                      ". The rank that they wait for is on another host; its launcher says which");
      if (IsMeeting(verdict) && !IsRecorded(verdict.awaited.group)) {
        lines.back() += ", unless all hosts say this: a group of the C interface joins the ranks of one host";
      }
      return lines;
  }
  if (!verdict.also_missing.empty()) {
    lines.push_back(Ranks(verdict.also_missing, first_rank) +
                    (verdict.kind == VerdictKind::kDesync ? " made the same call as it"
                     : verdict.also_missing.size() == 1   ? " has not come either"
                                                          : " have not come either"));
  }
  return lines;
}

std::string InShort(const HangVerdict& verdict, int first_rank) {
  if (verdict.kind == VerdictKind::kNothing || verdict.waiting.empty()) return "";
  std::string text = Ranks(verdict.waiting, first_rank) + (verdict.waiting.size() == 1 ? " waits " : " wait ") +
                     Seconds(verdict.waited) + " in " + InWords(verdict.awaited);
  if (verdict.culprit < 0) return text;
  text += " for rank " + std::to_string(first_rank + verdict.culprit);
  if (verdict.culprits_phase != wire::Phase::kNotTold) {
    text += std::string(" (") + wire::PhaseName(verdict.culprits_phase) + ")";
  }
  return text;
}

}  // namespace fulldeck::diagnosis
