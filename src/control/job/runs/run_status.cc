#include "job/runs/run_status.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "job/runs/run_orphans.h"

namespace fulldeck::job {
namespace {

std::string DescribeState(const wire::Supervision& supervision) {
  if (supervision.state == wire::RankState::kExited && WIFEXITED(supervision.wait_status)) {
    return fmt::format("exited with code {}", WEXITSTATUS(supervision.wait_status));
  }
  if (supervision.state == wire::RankState::kKilled && WIFSIGNALED(supervision.wait_status)) {
    return fmt::format("killed by signal {}", WTERMSIG(supervision.wait_status));
  }
  return wire::RankStateName(supervision.state);
}

// By local rank, from the entry.
std::vector<RankStatus> RanksOf(const RunRecord& record) {
  std::vector<RankStatus> ranks(std::max(record.cards.size(), record.ranks.size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].local_rank = static_cast<int>(i);
    ranks[i].rank = record.first_rank + static_cast<int>(i);
    ranks[i].state = "starting";
    if (i < record.cards.size()) ranks[i].card = record.cards[i];
  }
  return ranks;
}

std::string DeadState(const RunRecord& record) {
  const RunOrphans orphans = FindOrphans(record);
  if (orphans.processes.empty()) return "left behind";
  return fmt::format("left behind, {} process{} alive", orphans.processes.size(),
                     orphans.processes.size() == 1 ? "" : "es");
}

std::string LivingState(const std::vector<RankStatus>& ranks) {
  const auto count = [&](const auto& is) { return std::count_if(ranks.begin(), ranks.end(), is); };
  const auto ended = count([](const RankStatus& rank) { return !rank.alive && rank.state != "starting"; });
  const auto stopped = count([](const RankStatus& rank) { return rank.state == "stopped"; });
  if (count([](const RankStatus& rank) { return rank.state != "starting"; }) == 0) return "starting";
  std::string state = "running";
  if (ended > 0) state += fmt::format(", {} of {} ranks ended", ended, ranks.size());
  if (stopped > 0) state += fmt::format(", {} of {} ranks stopped", stopped, ranks.size());
  return state;
}

}  // namespace

void RunStatusReader::FillUsage(RankStatus& rank, const wire::ProcessIdentity& process) {
  const auto stat = wire::ReadProcessStat(process.pid);
  if (!stat || (process.start_ticks != 0 && stat->start_ticks != process.start_ticks)) return;
  rank.resident_bytes = stat->resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  Sample now{stat->start_ticks, clock_.Now(), stat->cpu_ticks, std::nullopt};
  if (rank.loop) now.samples = rank.loop->samples;
  Sample& before = samples_[process.pid];
  const double seconds = std::chrono::duration<double>(now.at - before.at).count();
  if (before.start_ticks == now.start_ticks && seconds > 0) {
    const auto rate = [seconds](std::uint64_t from, std::uint64_t to) {
      return to < from ? 0 : static_cast<double>(to - from) / seconds;
    };
    rank.cpu_percent = 100 * rate(before.cpu_ticks, now.cpu_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
    // A program that does not count samples has no rate, rather than a rate of zero.
    if (before.samples && now.samples && *now.samples > 0)
      rank.samples_per_second = rate(*before.samples, *now.samples);
  }
  before = now;
}

RunStatus RunStatusReader::Read(const RunRegistry::Entry& entry) {
  RunStatus status;
  status.entry = entry;
  const RunRecord& record = entry.record;
  status.ranks = RanksOf(record);

  std::optional<wire::RankBoard> board;
  if (entry.alive && record.board_fd >= 0) {
    auto opened = wire::RankBoard::Open(fmt::format("/proc/{}/fd/{}", record.supervisor.pid, record.board_fd));
    if (opened) board.emplace(std::move(*opened));
    if (!opened) status.board_problem = opened.error().message;
  }

  const bool pids_count = record.pid_space == ThisPidSpace();
  std::vector<wire::ProcessIdentity> processes(status.ranks.size());
  for (const RegisteredRank& rank : record.ranks) {
    if (static_cast<std::size_t>(rank.local_rank) < processes.size() && rank.process.pid > 0) {
      processes[static_cast<std::size_t>(rank.local_rank)] = rank.process;
    }
  }
  for (std::size_t i = 0; i < status.ranks.size(); ++i) {
    RankStatus& rank = status.ranks[i];
    const int local = static_cast<int>(i);
    const bool on_board = board && local < board->run().local_ranks;
    const auto supervision = on_board ? board->ReadSupervision(local) : std::nullopt;
    // The entry may be slightly older than the board.
    if (supervision && supervision->process.pid > 0) processes[i] = supervision->process;
    wire::ProcessIdentity process = processes[i];
    if (process.pid > 0) {
      rank.pid = process.pid;
      rank.alive = pids_count && wire::IsAlive(process);
      const auto stat = wire::ReadProcessStat(process.pid);
      const bool stopped = stat && (stat->state == 'T' || stat->state == 't');
      rank.state = !rank.alive ? "gone" : stopped ? "stopped" : "running";
    }
    // The board keeps the old state of a rank that has just ended until the supervisor notices.
    if (supervision && (rank.alive || supervision->state == wire::RankState::kStarting || supervision->state == wire::RankState::kExited ||
                 supervision->state == wire::RankState::kKilled)) {
      rank.state = DescribeState(*supervision);
    }
    if (on_board) rank.loop = board->ReadLoop(local);
    if (!rank.alive) continue;
    // Measure the program itself, not a script around it.
    const auto inner = on_board ? board->ReadProcess(local) : std::nullopt;
    if (inner && inner->process.pid > 0 && inner->process.start_ticks != 0 && wire::IsAlive(inner->process)) {
      process = inner->process;
    }
    FillUsage(rank, process);
  }
  for (const RankStatus& rank : status.ranks) {
    if (!rank.loop || rank.loop->step_at_ns == 0) continue;
    if (!status.step || rank.loop->step < *status.step) status.step = rank.loop->step;
    if (rank.loop->total_steps > 0) status.total_steps = rank.loop->total_steps;
  }
  status.state = entry.alive ? LivingState(status.ranks) : DeadState(record);
  return status;
}

}  // namespace fulldeck::job
