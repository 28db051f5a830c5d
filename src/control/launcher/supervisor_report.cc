// Supervisor: the report of a failed attempt.
#include "launcher/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/clock.h"
#include "base/files/unique_fd.h"
#include "diagnosis/error_file.h"
#include "diagnosis/failure_report.h"
#include "launcher/program.h"

namespace fulldeck::launcher {

std::optional<diagnosis::Root> Supervisor::FindRoot() const {
  if (!group_) return std::nullopt;
  std::vector<diagnosis::RankFacts> ranks = group_->Facts();
  const auto& verdict = hang_alarm_ && hang_alarm_->kind == diagnosis::VerdictKind::kDesync ? hang_alarm_ : desync_;
  if (verdict) {
    const std::size_t all = verdict->waiting.size() + 1;
    const bool majority = 2 * (verdict->waiting.size() - verdict->also_missing.size()) > all;
    std::vector<int> members = verdict->waiting;
    members.push_back(verdict->culprit);
    for (const int local_rank : members) {
      diagnosis::RankFacts& rank = ranks[static_cast<std::size_t>(local_rank)];
      if (rank.culprit >= 0 || rank.code == wire::FailureCode::kDifferentCalls) continue;
      rank.code = wire::FailureCode::kDifferentCalls;
      rank.culprit = majority ? group_->start().first_rank + verdict->culprit : -1;
    }
  }
  const std::vector<Rank>& all = group_->ranks();
  if (std::any_of(all.begin(), all.end(), WasSentTooMuch)) diagnosis::BlameDifferentCalls(ranks);
  if (last_wait_) diagnosis::BlameAwaited(ranks, *last_wait_);
  return diagnosis::RootOf(ranks, group_->start().world_size);
}

int Supervisor::ExitCodeOf(const diagnosis::Root& root) const {
  const auto failed = [&](int local_rank) { return group_->ranks()[static_cast<std::size_t>(local_rank)].exit_status; };
  if (!root.local_ranks.empty()) {
    const auto own = failed(root.local_ranks.front());
    if (own && !own->after_stop && !own->exit_status.ok()) return own->exit_status.exit_code();
  }
  return failed(root.noticed_by)->exit_status.exit_code();
}

// "rank 3 (gcu 3, pid 4711) exited with code 1"
std::string Supervisor::DescribeRoot(const diagnosis::Root& root) const {
  const std::vector<Rank>& ranks = group_->ranks();
  const int noticed_by = ranks[static_cast<std::size_t>(root.noticed_by)].rank;
  std::string who = fmt::format("rank {} of another node", root.rank);
  std::optional<diagnosis::RankExit> exit_status;
  if (!root.local_ranks.empty()) {
    who.clear();
    for (const int local_rank : root.local_ranks) {
      who += (who.empty() ? "" : " and ") + NameOf(ranks[static_cast<std::size_t>(local_rank)]);
    }
    exit_status = ranks[static_cast<std::size_t>(root.local_ranks.front())].exit_status;
  }
  switch (root.reason) {
    case diagnosis::RootReason::kExitCode:
    case diagnosis::RootReason::kSignal:
      return who + " " + (exit_status ? exit_status->exit_status.ToString() : "failed");
    case diagnosis::RootReason::kLeftEarly:
      return fmt::format("{} {} while rank {} still communicated with it", who,
                         exit_status && exit_status->exit_status.ok() ? "exited with code 0" : "left", noticed_by);
    case diagnosis::RootReason::kDifferentCalls:
      return who + (root.local_ranks.size() > 1 ? " made different collective calls"
                                                : " made another collective call than the other ranks");
    case diagnosis::RootReason::kNonfinite:
      return who + " gave a gradient that is not finite";
    case diagnosis::RootReason::kNotArrived:
      return fmt::format("{} did not arrive in the call in which rank {} waited", who, noticed_by);
  }
  return who;
}

void Supervisor::ReportFailure() {
  const bool here = !elsewhere_ || elsewhere_->group_rank == (group_ ? group_->start().group_rank : -1);
  if (elsewhere_) {
    LogLine(fmt::format("run {} failed; it began on host {}: {}", plan_->run_id, elsewhere_->host_name,
                        elsewhere_->summary));
    if (!here) return;
  }
  const auto root = FindRoot();
  if (!root) return;
  const Rank& noticed = group_->ranks()[static_cast<std::size_t>(root->noticed_by)];
  // A rank that ended after we began to stop was ended by us: this launcher was stopped, and no local rank is the root
  // cause.
  if (elsewhere_ && noticed.exit_status->after_stop) return;
  const Rank& rank =
      root->local_ranks.empty() ? noticed : group_->ranks()[static_cast<std::size_t>(root->local_ranks.front())];
  diagnosis::FailureFacts facts;
  facts.what = DescribeRoot(*root);
  if (root->reason == diagnosis::RootReason::kSignal && rank.exit_status->exit_status.signal_number() == SIGKILL) {
    const auto memory = OutOfMemoryVerdict(memory_before_, ReadMemoryPressure());
    facts.what += memory
                      ? ": " + *memory
                      : ", not by fulldeck; nothing points to memory: somebody sent it, or the cluster's manager did";
  }
  const bool ended_first = rank.exit_status && !rank.exit_status->after_stop;
  facts.after =
      fmt::format("after {}", base::FormatSeconds((ended_first ? rank.ended : noticed.ended) - attempt_began_));
  for (const Rank& other : group_->ranks()) {
    const bool stopped = !other.exit_status || other.exit_status->after_stop;
    if (&other != &rank && stopped) ++facts.stopped_others;
  }
  facts.stderr_path = rank.files.stderr_path;
  facts.stdout_path = rank.files.stdout_path;
  facts.crash_path = rank.files.crash_path;
  facts.error_path = rank.files.error_path;
  if (&noticed != &rank) {
    facts.noticed_by = NameOf(noticed);
    facts.noticed_path = noticed.files.stderr_path;
    const auto error = group_->board().ReadError(noticed.local_rank);
    if (error) facts.noticed_error = error->text.substr(0, error->text.find('\n'));
  }
  facts.python = PythonOf(plan_->program, plan_->flags);
  const diagnosis::FailureLines report = diagnosis::FailureReport(facts);
  for (const std::string& line : report.lines) LogLine(line);
  std::vector<std::int64_t> root_ranks;
  for (const int local_rank : root->local_ranks) {
    root_ranks.push_back(group_->ranks()[static_cast<std::size_t>(local_rank)].rank);
  }
  if (root_ranks.empty()) root_ranks.push_back(root->rank);
  Record({"run-failed",
          events::Severity::kError,
          {{"run", plan_->run_id},
           {"root_rank", std::int64_t{root->rank}},
           {"root_ranks", root_ranks},
           {"noticed_by", std::int64_t{noticed.rank}},
           {"reason", std::string(diagnosis::NameOf(root->reason))},
           {"exit_code", std::int64_t{ExitCodeOf(*root)}},
           {"exit_code_source", std::string("script")},
           {"failure_codes", report.known},
           {"failure_code", report.known.empty() ? std::string() : report.known.front()},
           {"python", facts.python}},
          report.lines.front()});
  CopyErrorFile(rank.exit_status && !rank.exit_status->exit_status.ok() ? rank : noticed);
}

// A caller that set TORCHELASTIC_ERROR_FILE for the launcher finds the root cause there.
void Supervisor::CopyErrorFile(const Rank& rank) const {
  const auto target = plan_->environment.Get("TORCHELASTIC_ERROR_FILE");
  if (!target || target->empty()) return;
  std::string text = diagnosis::ReadTail(rank.files.error_path, std::size_t{1} << 20);
  if (text.empty()) {
    text =
        diagnosis::FormatErrorFile(NameOf(rank) + " " + rank.exit_status->exit_status.ToString(), std::time(nullptr));
  }
  // A pipe that is not read must not block the report.
  const base::UniqueFd file(open(target->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  if (file.valid()) [[maybe_unused]]
    const auto written = write(file.get(), text.data(), text.size());
}

}  // namespace fulldeck::launcher
