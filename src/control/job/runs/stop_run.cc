#include "job/runs/stop_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/text.h"
#include "job/runs/process_signal.h"
#include "job/runs/run_orphans.h"

namespace fulldeck::job {
namespace {

using Entry = RunRegistry::Entry;
using Seconds = std::chrono::duration<double>;

// The time that a front needs to notice that its supervisor is gone, and to exit.
constexpr std::chrono::seconds kProxyTimeout{2};
constexpr std::chrono::seconds kBeyondGrace{5};

std::string Describe(const CleanUpReport& report) {
  std::vector<std::string> parts;
  if (report.killed > 0) parts.push_back(base::Counted(report.killed, "process") + " killed");
  if (report.removed_cgroups > 0) parts.push_back(base::Counted(report.removed_cgroups, "cgroup") + " removed");
  parts.insert(parts.end(), report.problems.begin(), report.problems.end());
  return base::Join(parts, "; ");
}

class Stopping {
 public:
  Stopping(const RunRegistry& registry, Entry entry, const StopOptions& options)
      : registry_(registry), entry_(std::move(entry)), options_(options) {
    stopped_.run_id = entry_.record.run_id;
  }

  void RequestStop() {
    requested_at_ = base::SteadyClock::Instance().Now();
    if (!entry_.alive) return;
    const RunRecord& record = entry_.record;
    const bool proxy_alive = record.front.pid > 0 && wire::IsAlive(record.front);
    const wire::ProcessIdentity& target = proxy_alive ? record.front : record.supervisor;
    sent_ = SendSignal(target, SIGTERM);
    if (sent_ == SignalOutcome::kSent && options_.log_line) {
      options_.log_line(fmt::format("run {}: asked process {} to stop; waiting for at most {:g} s", record.run_id,
                                    target.pid, Seconds(Timeout()).count()));
    }
  }

  StoppedRun Await() {
    if (!entry_.alive) return CleanDead();
    if (sent_ == SignalOutcome::kRefused) {
      stopped_.message = "cannot be stopped: its launcher runs as another user (root stops it)";
      return stopped_;
    }
    const base::Duration waited = base::SteadyClock::Instance().Now() - requested_at_;
    const auto left = WaitUntilGone(Launcher(), std::max<base::Duration>(Timeout() - waited, base::Duration(0)));
    if (!left.empty()) return Kill();
    const base::Duration took = base::SteadyClock::Instance().Now() - requested_at_;
    stopped_.message = fmt::format("stopped in {:.1f} s", Seconds(took).count());
    stopped_.ok = true;
    // The launcher removes its entry last. If the entry still exists, the launcher could not finish its cleanup.
    const auto after = registry_.ReadAgain(entry_);
    if (after && after->record.supervisor.pid == entry_.record.supervisor.pid) AddCleanUp(*after);
    return stopped_;
  }

 private:
  std::vector<wire::ProcessIdentity> Launcher() const {
    std::vector<wire::ProcessIdentity> launcher{entry_.record.supervisor};
    if (entry_.record.front.pid > 0) launcher.push_back(entry_.record.front);
    return launcher;
  }

  base::Duration Timeout() const {
    return options_.timeout.value_or(std::chrono::milliseconds(entry_.record.grace_milliseconds) + kBeyondGrace);
  }

  StoppedRun CleanDead() {
    // A front that is still alive is about to stop the ranks itself, and does it more gracefully.
    if (entry_.record.front.pid > 0) WaitUntilGone({entry_.record.front}, kProxyTimeout);
    stopped_.message = "was left behind by a launcher that is gone";
    stopped_.ok = true;
    AddCleanUp(entry_);
    if (stopped_.ok) stopped_.message += "; its entry is removed";
    return stopped_;
  }

  StoppedRun Kill() {
    // A restart may have changed the ranks since the entry was read.
    const auto now = registry_.ReadAgain(entry_);
    Entry last = now && now->record.supervisor.pid == entry_.record.supervisor.pid ? *now : entry_;
    for (const wire::ProcessIdentity& process : Launcher()) SendSignal(process, SIGKILL);
    const auto left = WaitUntilGone(Launcher(), options_.kill_timeout);
    stopped_.message = fmt::format("did not end within {:g} s and was killed", Seconds(Timeout()).count());
    stopped_.ok = left.empty();
    for (const wire::ProcessIdentity& process : left) {
      stopped_.message += fmt::format("; its launcher, process {}, does not end even so", process.pid);
    }
    AddCleanUp(last);
    return stopped_;
  }

  void AddCleanUp(const Entry& entry) {
    const CleanUpReport report = CleanUp(registry_, entry, options_.kill_timeout);
    const std::string message = Describe(report);
    if (!message.empty()) stopped_.message += "; " + message;
    stopped_.ok = stopped_.ok && report.problems.empty();
  }

  const RunRegistry& registry_;
  Entry entry_;
  const StopOptions& options_;
  base::TimePoint requested_at_;
  SignalOutcome sent_ = SignalOutcome::kGone;
  StoppedRun stopped_;
};

}  // namespace

std::vector<StoppedRun> StopRuns(const RunRegistry& registry, const std::vector<RunRegistry::Entry>& entries,
                                 const StopOptions& options) {
  std::vector<Stopping> stopping;
  for (const Entry& entry : entries) stopping.emplace_back(registry, entry, options);
  for (Stopping& each : stopping) each.RequestStop();
  std::vector<StoppedRun> stopped;
  for (Stopping& each : stopping) stopped.push_back(each.Await());
  return stopped;
}

}  // namespace fulldeck::job
