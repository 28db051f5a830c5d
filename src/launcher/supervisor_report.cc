// Supervisor: the report of a failed attempt.
#include "launcher/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "base/unique_fd.h"
#include "launcher/failure_report.h"

namespace fulldeck::launcher {
void Supervisor::ReportFailure() {
  const bool here = !elsewhere_ || elsewhere_->group_rank == (group_ ? group_->start().group_rank : -1);
  if (elsewhere_) {
    Say(fmt::format("run {} failed; it began on host {}: {}", plan_->run_id, elsewhere_->host_name,
                    elsewhere_->summary));
    if (!here) return;
  }
  if (!group_) return;
  const std::vector<RankEnding> failures = group_->Failures();
  const auto root = RootCause(failures);
  // What ended after we had begun to stop is our doing: somebody stopped this launcher, and no rank began.
  if (!root || (elsewhere_ && failures[*root].after_stop)) return;
  const RankEnding& ending = failures[*root];
  const Rank& rank = group_->ranks()[static_cast<std::size_t>(ending.local_rank)];
  FailureFacts facts;
  facts.who = NameOf(rank);
  facts.how = ending.ending.InWords();
  if (ending.ending.signal_number() == SIGKILL) {
    const auto memory = OutOfMemoryVerdict(memory_before_, ReadMemoryPressure());
    facts.how += memory ? ": " + *memory
                        : ", not by fulldeck; nothing points to memory: somebody sent it, or the cluster's manager did";
  }
  facts.after = fmt::format("after {}", Seconds(rank.ended - attempt_began_));
  for (const Rank& other : group_->ranks()) {
    const bool stopped = !other.ending || other.ending->after_stop;
    if (&other != &rank && stopped) ++facts.stopped_others;
  }
  facts.stderr_path = rank.files.stderr_path;
  facts.stdout_path = rank.files.stdout_path;
  facts.crash_path = rank.files.crash_path;
  facts.error_path = rank.files.error_path;
  for (const std::string& line : FailureReport(facts)) Say(line);
  CopyErrorFile(rank);
}

// Whoever started us under an error file of its own finds the root cause there.
void Supervisor::CopyErrorFile(const Rank& rank) const {
  const auto target = plan_->environment.Get("TORCHELASTIC_ERROR_FILE");
  if (!target || target->empty()) return;
  std::string text = ReadTail(rank.files.error_path, std::size_t{1} << 20);
  if (text.empty()) {
    text = fmt::format("{{\"message\": \"{} {}\", \"timestamp\": {}}}\n", NameOf(rank), rank.ending->ending.InWords(),
                       std::time(nullptr));
  }
  const base::UniqueFd file(open(target->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.valid()) [[maybe_unused]]
    const auto written = write(file.get(), text.data(), text.size());
}

}  // namespace fulldeck::launcher
