// The text and the events of a hang verdict.
#include <algorithm>
#include <cstdio>

#include "base/clock.h"

#include "base/text.h"
#include "diagnosis/hangs/hang_verdict.h"

namespace fulldeck::diagnosis {
namespace {

std::string NameOf(int local_rank, const std::vector<std::string>& names, int first_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return local_rank >= 0 && index < names.size() ? names[index] : "rank " + std::to_string(first_rank + local_rank);
}

std::string OfGroup(const CallSeen& call) {
  return call.group.empty() ? "" : " of group " + call.group;
}

std::string Waiting(const HangVerdict& verdict, int first_rank) {
  return base::FormatRanks(verdict.waiting, first_rank) + (verdict.waiting.size() == 1 ? " has" : " have");
}

bool IsRendezvous(const HangVerdict& verdict) {
  return verdict.awaited.operation == FULLDECK_BOARD_MEETING;
}

std::string LastOf(const HangVerdict& verdict) {
  if (!verdict.culprits_call) {
    return IsRendezvous(verdict) ? "it has not come there" : "it has made no call of that group";
  }
  // torch's recorder is read ten times per second, so its data is up to a tenth of a second old; that of a stopped rank
  // is older.
  return (IsRecorded(verdict.culprits_call->group) ? "its last call seen was " : "its last call was ") +
         Describe(*verdict.culprits_call);
}

std::string HowItIs(const HangVerdict& verdict) {
  std::string text;
  switch (verdict.evidence) {
    case Evidence::kDeadlocked:
      text = "its threads are deadlocked: each waits for a lock that only another one of them can release";
      break;
    case Evidence::kSleeping:
      text = "it sleeps in one place: no CPU time, nothing read, nothing written";
      break;
    case Evidence::kSpinning:
      text = "it spins in place: it takes CPU time, reads and writes nothing, and its stack stays the same";
      break;
    case Evidence::kBlockedIo:
      text = "it waits for a file or socket that does not answer";
      if (verdict.wait.call.empty()) text += ": a disk, a network file system or a driver holds it";
      break;
    default:
      break;
  }
  if (verdict.evidence != Evidence::kSpinning) {
    const std::string kernel = Describe(verdict.wait);
    if (!kernel.empty()) text += " (" + kernel + ")";
  }
  if (verdict.culprits_phase != wire::Phase::kNotReported) {
    text += std::string(", in phase ") + wire::PhaseName(verdict.culprits_phase);
  }
  return text;
}

std::string OperationOf(const CallSeen& call) {
  return call.operation != 0 ? wire::OperationName(call.operation) : "collective";
}

std::vector<std::int64_t> RunRanks(const std::vector<int>& local_ranks, int first_rank) {
  std::vector<std::int64_t> ranks;
  for (const int local_rank : local_ranks) ranks.push_back(first_rank + local_rank);
  return ranks;
}

events::Fields FieldsOf(const HangVerdict& verdict, const HangContext& context) {
  events::Fields fields;
  fields.Set("awaited_rank", std::int64_t{verdict.culprit < 0 ? -1 : context.first_rank + verdict.culprit});
  fields.Set("waiting_ranks", RunRanks(verdict.waiting, context.first_rank));
  fields.Set("call", OperationOf(verdict.awaited));
  fields.Set("call_number", static_cast<std::int64_t>(verdict.awaited.sequence));
  fields.Set("group", verdict.awaited.group);
  fields.Set("waited_seconds", std::chrono::duration<double>(verdict.waited).count());
  fields.Set("io", verdict.io);
  if (!verdict.wait.call.empty()) fields.Set("system_call", verdict.wait.call);
  if (!verdict.wait.on.empty()) fields.Set("system_call_on", verdict.wait.on);
  if (verdict.traced) fields.Set("debugger", true);
  if (verdict.culprits_call) {
    fields.Set("last_call", OperationOf(*verdict.culprits_call));
    fields.Set("last_call_number", static_cast<std::int64_t>(verdict.culprits_call->sequence));
  }
  if (!verdict.also_missing.empty()) fields.Set("also_missing", RunRanks(verdict.also_missing, context.first_rank));
  if (verdict.culprits_phase != wire::Phase::kNotReported) {
    fields.Set("phase", std::string(wire::PhaseName(verdict.culprits_phase)));
  }
  return fields;
}

}  // namespace

std::string Describe(const CallSeen& call) {
  std::string text = OperationOf(call);
  text += " #" + std::to_string(call.sequence);
  if (call.operation != 0 && call.datatype != FULLDECK_BOARD_NO_DATA && call.count > 0) {
    text += std::string(" (") + wire::DatatypeName(call.datatype) + " × " + std::to_string(call.count) + ")";
  }
  return text;
}

std::vector<std::string> Describe(const HangVerdict& verdict, const std::vector<std::string>& names, int first_rank,
                                  const std::string& node) {
  const std::string culprit = verdict.culprit >= 0 ? NameOf(verdict.culprit, names, first_rank) : "";
  const std::string where = Describe(verdict.awaited) + OfGroup(verdict.awaited);
  const std::string waited = " waited " + base::FormatSeconds(verdict.waited) + " in " + where;
  std::vector<std::string> lines;
  switch (verdict.kind) {
    case VerdictKind::kNothing:
    case VerdictKind::kWaiting:
      return lines;
    case VerdictKind::kHang:
      if (verdict.culprit < 0) {
        lines.push_back("HANG: all ranks of group " + verdict.awaited.group + " are in " + Describe(verdict.awaited) +
                        " for " + base::FormatSeconds(verdict.waited) +
                        ", and none of them does anything: no rank is missing, what connects them does not move");
        return lines;
      }
      lines.push_back("HANG: " + culprit + " is stuck; " + Waiting(verdict, first_rank) + waited + " for it, " +
                      LastOf(verdict));
      lines.push_back(HowItIs(verdict));
      break;
    case VerdictKind::kDesync:
      lines.push_back("DESYNC: " + culprit + " is in " + Describe(*verdict.culprits_call) +
                      OfGroup(*verdict.culprits_call) + ", while " + base::FormatRanks(verdict.waiting, first_rank) +
                      (verdict.waiting.size() == 1 ? " is in " : " are in ") + where + " for " +
                      base::FormatSeconds(verdict.waited));
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
      lines.push_back("HANG: " + culprit + " has exited; " + Waiting(verdict, first_rank) + waited + " for it, " +
                      LastOf(verdict));
      lines.emplace_back(IsRendezvous(verdict)
                             ? "it exited without an error before the group was made: all ranks must make it"
                             : "it exited without an error before the others were done: do all ranks "
                               "get the same number of batches?");
      break;
    case VerdictKind::kElsewhere:
      lines.push_back("all ranks of node " + node + " wait: " + Waiting(verdict, first_rank) + waited +
                      ". The awaited rank is on another node; its launcher reports which");
      if (IsRendezvous(verdict) && !IsRecorded(verdict.awaited.group)) {
        lines.back() += ", unless all nodes report this: a group of the C interface joins the ranks of one node";
      }
      return lines;
  }
  if (!verdict.also_missing.empty()) {
    lines.push_back(base::FormatRanks(verdict.also_missing, first_rank) +
                    (verdict.kind == VerdictKind::kDesync ? " made the same call as it"
                     : verdict.also_missing.size() == 1   ? " has not come either"
                                                          : " have not come either"));
  }
  return lines;
}

events::Event HangEvent(const HangVerdict& verdict, const HangContext& context) {
  events::Event event;
  event.id = "hang";
  event.severity = events::Severity::kWarning;
  event.fields = FieldsOf(verdict, context);
  event.fields.Set("evidence", std::string(NameOf(verdict.evidence)));
  for (const std::string& line : Describe(verdict, context.names, context.first_rank, context.node)) {
    event.message += (event.message.empty() ? "" : "; ") + line;
  }
  return event;
}

events::Event WaitingEvent(const HangVerdict& verdict, const HangContext& context, const std::string& where) {
  events::Event event;
  event.id = "waiting";
  event.fields = FieldsOf(verdict, context);
  event.fields.Set("where", where);
  event.fields.Set("elsewhere", verdict.kind == VerdictKind::kElsewhere);
  if (verdict.kind == VerdictKind::kElsewhere) {
    event.message = Describe(verdict, context.names, context.first_rank, context.node).front();
    return event;
  }
  event.message = Waiting(verdict, context.first_rank) + " waited " + base::FormatSeconds(verdict.waited) + " in " +
                  Describe(verdict.awaited) + OfGroup(verdict.awaited);
  if (verdict.culprit < 0) return event;
  event.message += " for " + NameOf(verdict.culprit, context.names, context.first_rank);
  const std::string kernel = Describe(verdict.wait);
  if (verdict.traced) event.message += ", to which a debugger is attached";
  if (!where.empty()) event.message += ", whose main thread is at " + where;
  if (!kernel.empty()) event.message += (where.empty() ? ", whose main thread is " : ", ") + kernel;
  if (verdict.culprits_phase != wire::Phase::kNotReported) {
    event.message += std::string(" (phase ") + wire::PhaseName(verdict.culprits_phase) + ")";
  }
  return event;
}

std::string DescribeBriefly(const HangVerdict& verdict, int first_rank) {
  if (verdict.kind == VerdictKind::kNothing || verdict.waiting.empty()) return "";
  std::string text = base::FormatRanks(verdict.waiting, first_rank) +
                     (verdict.waiting.size() == 1 ? " waits " : " wait ") + base::FormatSeconds(verdict.waited) +
                     " in " + Describe(verdict.awaited);
  if (verdict.culprit < 0) return text;
  text += " for rank " + std::to_string(first_rank + verdict.culprit);
  if (verdict.culprits_phase != wire::Phase::kNotReported) {
    text += std::string(" (") + wire::PhaseName(verdict.culprits_phase) + ")";
  }
  return text;
}

}  // namespace fulldeck::diagnosis
