#include "job/runs/run_orphans.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <thread>

#include "base/files/system_root.h"
#include "base/text.h"
#include "job/runs/cgroup_folder.h"
#include "job/runs/process_signal.h"
#include "wire/variables.h"

namespace fulldeck::job {
namespace {

// Whether a process was started in this run: its initial environment has the run's variables, whatever group, session
// or parent it has now. The folder distinguishes runs of the same name.
bool WasStartedIn(const RunRecord& record, int pid) {
  const auto variables = base::SystemRoot().ReadFile(fmt::format("/proc/{}/environ", pid));
  if (!variables) return false;
  bool same_id = false;
  bool same_folder = false;
  for (const std::string_view variable : base::Split(*variables, '\0')) {
    same_id = same_id || variable == fmt::format("{}={}", wire::kRunIdVariable, record.run_id);
    same_folder = same_folder || variable == fmt::format("{}={}", wire::kRunDirVariable, record.directory);
  }
  return same_id && same_folder;
}

bool IsOwn(int pid) {
  struct stat facts {};
  return stat(fmt::format("/proc/{}", pid).c_str(), &facts) == 0 && facts.st_uid == geteuid();
}

// Whether it is in the process group of a rank that is gone now.
bool IsInGroupOfARank(const RunRecord& record, const wire::ProcessIdentity& process) {
  const int group = getpgid(process.pid);
  return std::any_of(record.ranks.begin(), record.ranks.end(), [&](const RegisteredRank& rank) {
    return rank.process.pid > 1 && group == rank.process.pid && process.start_ticks >= rank.process.start_ticks &&
           !wire::IdentityOf(group);
  });
}

void KillOnce(const RunRecord& record, const RunOrphans& orphans) {
  for (const RegisteredRank& rank : record.ranks) {
    // Each rank leads its own process group; while the rank lives, the group cannot belong to other processes.
    if (rank.process.pid > 1 && rank.process.start_ticks != 0 && wire::IsAlive(rank.process) &&
        getpgid(rank.process.pid) == rank.process.pid && !IsThisProcessOrAncestor(rank.process.pid)) {
      kill(-rank.process.pid, SIGKILL);
    }
  }
  for (const wire::ProcessIdentity& process : orphans.processes) {
    if (!IsThisProcessOrAncestor(process.pid)) SendSignal(process, SIGKILL);
  }
  for (const std::string& cgroup : orphans.cgroups) KillCgroup(cgroup);
}

}  // namespace

RunOrphans FindOrphans(const RunRecord& record) {
  RunOrphans orphans;
  if (record.pid_space != ThisPidSpace()) return orphans;
  std::set<int> seen;
  const auto add = [&](const wire::ProcessIdentity& process) {
    // Without a start time, the pid may belong to any process.
    if (process.pid <= 1 || process.start_ticks == 0 || !wire::IsAlive(process)) return;
    if (seen.insert(process.pid).second) orphans.processes.push_back(process);
  };
  for (const RegisteredRank& rank : record.ranks) add(rank.process);
  add(record.front);
  // Children of dead ranks have other parents by now, and if the run has no cgroup, nothing else connects them.
  for (const std::string& name : base::SystemRoot().List("/proc")) {
    const auto pid = base::ParseInteger<int>(name);
    if (!pid || seen.contains(*pid) || !IsOwn(*pid)) continue;
    const auto process = wire::IdentityOf(*pid);
    if (!process) continue;
    if (WasStartedIn(record, *pid)) {
      add(*process);
    } else if (IsInGroupOfARank(record, *process) && wire::IsAlive(*process)) {
      orphans.unsure.push_back(*process);
    }
  }
  for (const std::string& cgroup : record.cgroups) {
    if (!IsCgroup(cgroup)) continue;
    orphans.cgroups.push_back(cgroup);
    for (const wire::ProcessIdentity& process : ProcessesIn(CgroupTree(cgroup))) add(process);
  }
  std::erase_if(orphans.unsure, [&](const wire::ProcessIdentity& process) { return seen.contains(process.pid); });
  return orphans;
}

CleanUpReport CleanUp(const RunRegistry& registry, const RunRegistry::Entry& entry, base::Duration timeout) {
  CleanUpReport report;
  const base::TimePoint deadline = base::SteadyClock::Instance().Now() + timeout;
  std::set<int> found;
  RunOrphans orphans = FindOrphans(entry.record);
  const std::vector<std::string> cgroups = orphans.cgroups;
  while (!orphans.processes.empty()) {
    for (const wire::ProcessIdentity& process : orphans.processes) found.insert(process.pid);
    KillOnce(entry.record, orphans);
    // Processes that were forked meanwhile are found in the next round.
    const base::Duration left = deadline - base::SteadyClock::Instance().Now();
    WaitUntilGone(orphans.processes, std::min<base::Duration>(left, std::chrono::milliseconds(200)));
    orphans = FindOrphans(entry.record);
    if (base::SteadyClock::Instance().Now() >= deadline) break;
  }
  report.killed = static_cast<int>(found.size() - orphans.processes.size());
  for (const wire::ProcessIdentity& process : orphans.processes) {
    report.problems.push_back(
        IsThisProcessOrAncestor(process.pid)
            ? fmt::format(
                  "process {} belongs to the run, and fulldeck itself was started from it: leave it first, then "
                  "stop the run again",
                  process.pid)
            : fmt::format(
                  "process {} does not end, not even after SIGKILL: it hangs in the kernel (often a driver of its "
                  "card), or it is another user's",
                  process.pid));
  }
  if (!orphans.processes.empty()) return report;
  for (const std::string& cgroup : cgroups) {
    // A cgroup stays busy for a moment after its last process has ended.
    bool removed = RemoveCgroup(cgroup);
    while (!removed && base::SteadyClock::Instance().Now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      removed = RemoveCgroup(cgroup);
    }
    if (removed) ++report.removed_cgroups;
    if (!removed) report.problems.push_back(fmt::format("the cgroup {} cannot be removed", base::Printable(cgroup)));
  }
  for (const wire::ProcessIdentity& process : orphans.unsure) {
    report.problems.push_back(fmt::format(
        "process {} ({}) is in the process group of a rank that is gone, and has cleared its environment: if it is "
        "this run's, end it with kill {}, and stop the run again",
        process.pid,
        base::Printable(base::SystemRoot().ReadLine(fmt::format("/proc/{}/comm", process.pid)).value_or("?")),
        process.pid));
  }
  if (report.problems.empty()) registry.Remove(entry);
  return report;
}

}  // namespace fulldeck::job
