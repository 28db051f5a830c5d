#include "launcher/rank_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/subprocess.h"
#include "device/host.h"
#include "diagnosis/error_file.h"
#include "diagnosis/failure_report.h"
#include "job/launch/rank_environment.h"
#include "launcher/program.h"
#include "wire/process_identity.h"
#include "wire/variables.h"

namespace fulldeck::launcher {
namespace {

constexpr base::Duration kErrorBelongsToTheEnd = std::chrono::minutes(5);

job::AttemptContext ContextOf(const RunPlan& plan, const nodes::AttemptStart& start) {
  job::AttemptContext context;
  context.run_id = plan.run_id;
  context.run_dir = plan.directory->path();
  context.role = plan.flags.role;
  context.master_addr = start.master_addr;
  context.master_port = start.master_port;
  context.attempt = start.attempt;
  context.max_restarts = plan.flags.max_restarts;
  context.local_world_size = static_cast<int>(plan.ranks.size());
  context.world_size = start.world_size;
  context.first_rank = start.first_rank;
  context.group_rank = start.group_rank;
  context.group_world_size = start.group_world_size;
  context.cpu_requested = plan.cpu_requested;
  context.virtual_local_rank = plan.flags.virtual_local_rank;
  context.share_cards = plan.flags.share_cards;
  context.torch_plugins = plan.flags.torch_plugins;
  context.adapter_variables = job::AdapterVariables(plan.flags);
  context.agent_library = plan.agent_library;
  context.python_hook = plan.python_hook;
  context.visible_devices = plan.visible_devices;
  context.board_fd = kBoardDescriptor;
  context.collectives_key = plan.collectives_key;
  return context;
}

// The first line of a rank's log.
std::string FirstLine(const RunPlan& plan, const nodes::AttemptStart& start, const Rank& rank) {
  const PlannedRank& planned = plan.ranks[static_cast<std::size_t>(rank.local_rank)];
  return fmt::format("fulldeck: rank {} of {}, local rank {} on host {}: {}{}\n", rank.rank, start.world_size,
                     rank.local_rank, plan.host_name, DescribeCard(planned),
                     planned.bound_to.empty() ? "" : ", processors " + device::FormatCpuList(planned.bound_to));
}

base::SpawnOptions OptionsFor(const RunPlan& plan, const job::AttemptContext& context, const Rank& rank, int board_fd,
                              const std::optional<RunCgroup>& cgroup) {
  const PlannedRank& planned = plan.ranks[static_cast<std::size_t>(rank.local_rank)];
  job::RankContext own;
  own.local_rank = rank.local_rank;
  own.threads = planned.placement.threads;
  own.card = planned.card ? &*planned.card : nullptr;
  own.error_file = rank.files.error_path;
  own.crash_file = rank.files.crash_path;
  own.stack_file = rank.files.stack_path;

  base::SpawnOptions options;
  options.arguments = ProgramOfRank(plan.program, plan.flags, rank.local_rank);
  options.environment = job::RankEnvironment(plan.environment, context, own);
  options.pid_variable = wire::kRankPidVariable;
  options.descriptors = {{STDOUT_FILENO, rank.files.stdout_file.get()},
                         {STDERR_FILENO, rank.files.stderr_file.get()},
                         {kBoardDescriptor, board_fd}};
  // A terminal cannot be read from another session; a pipe or file can. A detached run leaves standard input to the
  // caller.
  if (!plan.flags.detach && isatty(STDIN_FILENO) == 0) options.descriptors.emplace_back(STDIN_FILENO, STDIN_FILENO);
  options.parent_death_signal = SIGKILL;
  options.cpus = planned.bound_to;
  if (cgroup) {
    options.clone_into_cgroup = cgroup->born_into();
    if (cgroup->procs_fd() >= 0) options.join_cgroups = {cgroup->procs_fd()};
  }
  return options;
}

}  // namespace

base::Result<RankGroup> RankGroup::Prepare(const RunPlan& plan, const nodes::AttemptStart& start) {
  auto board = wire::RankBoard::Create({.run_id = plan.run_id,
                                        .attempt = start.attempt,
                                        .local_ranks = static_cast<int>(plan.ranks.size()),
                                        .first_rank = start.first_rank,
                                        .world_size = start.world_size});
  if (!board) return board.error();
  RankGroup group(std::move(*board));
  group.start_ = start;
  for (std::size_t local_rank = 0; local_rank < plan.ranks.size(); ++local_rank) {
    Rank rank;
    rank.local_rank = static_cast<int>(local_rank);
    rank.rank = start.first_rank + rank.local_rank;
    auto files = plan.directory->MakeRankFiles(start.attempt, rank.local_rank);
    if (!files && start.attempt > 0 && IsOutOfRoom(files.error())) {
      // Training continues from its checkpoint; lost output is not a reason to end it.
      files = plan.directory->RankFilesWithoutOutput(start.attempt, rank.local_rank);
      rank.has_no_log = true;
    }
    if (!files) return files.error();
    rank.files = std::move(*files);
    const std::string line = FirstLine(plan, start, rank);
    [[maybe_unused]] const auto written = write(rank.files.stderr_file.get(), line.data(), line.size());
    group.ranks_.push_back(std::move(rank));
  }
  return group;
}

base::Result<void> RankGroup::Start(const RunPlan& plan, const std::optional<RunCgroup>& cgroup) {
  const job::AttemptContext context = ContextOf(plan, start_);
  std::vector<base::StartedProcess> started;
  std::optional<base::Error> failed;
  for (Rank& rank : ranks_) {
    auto process = base::StartProcess(OptionsFor(plan, context, rank, board_.fd(), cgroup));
    if (!process) {
      failed = base::Error{fmt::format("rank {}: {}{}", rank.rank, process.error().message,
                                       process.error().system_error == EAGAIN
                                           ? ". The limit of processes is reached: ulimit -u, or pids.max of the cgroup"
                                           : ""),
                           process.error().system_error};
      break;
    }
    started.push_back(std::move(*process));
  }
  const base::TimePoint now = base::SteadyClock::Instance().Now();
  for (std::size_t i = 0; i < started.size(); ++i) {
    const auto pid = base::WaitForExec(started[i]);
    if (cgroup_error_ == 0) cgroup_error_ = started[i].cgroup_error;
    if (!pid) {
      if (!failed) failed = base::Error{fmt::format("rank {}: {}", ranks_[i].rank, pid.error().message)};
      continue;
    }
    ranks_[i].pid = *pid;
    ranks_[i].files.stdout_file.Reset();
    ranks_[i].files.stderr_file.Reset();
    ShowOnBoard(plan, ranks_[i], now);
  }
  if (!failed) return {};
  Signal(SIGKILL);
  return *failed;
}

void RankGroup::ShowOnBoard(const RunPlan& plan, const Rank& rank, base::TimePoint now) {
  const PlannedRank& planned = plan.ranks[static_cast<std::size_t>(rank.local_rank)];
  wire::Supervision supervision;
  supervision.process = wire::IdentityOf(rank.pid).value_or(wire::ProcessIdentity{rank.pid, 0});
  supervision.state = wire::RankState::kRunning;
  supervision.since_ns = static_cast<std::uint64_t>(now.time_since_epoch().count());
  if (planned.card) {
    supervision.card = device::NameOf(*planned.card);
    supervision.card_serial = planned.card->serial.value_or("");
  }
  supervision.processors = device::FormatCpuList(planned.bound_to);
  board_.WriteSupervision(rank.local_rank, supervision);
}

bool WasSentTooMuch(const Rank& rank) {
  if (!rank.exit_status || rank.exit_status->exit_status.signal_number() != SIGABRT) return false;
  const std::string end = diagnosis::ReadTail(rank.files.stderr_path, std::size_t{1} << 14);
  return end.find("gloo::EnforceNotMet") != std::string::npos && end.find("expected size") != std::string::npos;
}

Rank* RankGroup::Find(pid_t pid) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.pid == pid; });
  return found == ranks_.end() ? nullptr : &*found;
}

int RankGroup::alive() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid > 0 && !rank.exit_status; }));
}

void RankGroup::Ended(Rank& rank, int wait_status, int order, bool after_stop, base::TimePoint now) {
  rank.exit_status =
      diagnosis::RankExit{rank.local_rank, diagnosis::ExitStatus{wait_status}, order, after_stop, std::nullopt, now};
  rank.ended = now;
  rank.stopped = false;
  UpdateBoard(rank,
              rank.exit_status->exit_status.signal_number() != 0 ? wire::RankState::kKilled : wire::RankState::kExited,
              wait_status, now);
}

void RankGroup::StoppedOrContinued(Rank& rank, bool stopped, base::TimePoint now) {
  rank.stopped = stopped;
  UpdateBoard(rank, stopped ? wire::RankState::kStopped : wire::RankState::kRunning, 0, now);
}

void RankGroup::ShowCardUse(int local_rank, wire::CardUse use) {
  auto supervision = board_.ReadSupervision(local_rank);
  if (!supervision || supervision->card_use == use) return;
  supervision->card_use = use;
  board_.WriteSupervision(local_rank, *supervision);
}

void RankGroup::UpdateBoard(const Rank& rank, wire::RankState state, int wait_status, base::TimePoint now) {
  auto supervision = board_.ReadSupervision(rank.local_rank).value_or(wire::Supervision());
  supervision.state = state;
  supervision.wait_status = wait_status;
  supervision.since_ns = static_cast<std::uint64_t>(now.time_since_epoch().count());
  board_.WriteSupervision(rank.local_rank, supervision);
}

void RankGroup::Signal(int signal_number) const {
  for (const Rank& rank : ranks_) {
    if (rank.pid <= 0 || rank.exit_status) continue;
    kill(-rank.pid, signal_number);
    if (rank.stopped) kill(-rank.pid, SIGCONT);
  }
}

std::vector<diagnosis::RankExit> RankGroup::Failures() const {
  std::vector<diagnosis::RankExit> failures;
  for (const Rank& rank : ranks_) {
    if (!rank.exit_status || rank.exit_status->exit_status.ok()) continue;
    failures.push_back(*rank.exit_status);
    const auto error = diagnosis::ParseErrorFile(diagnosis::ReadTail(rank.files.error_path, std::size_t{1} << 20));
    if (error) failures.back().error_seconds = error->unix_seconds;
  }
  return failures;
}

std::vector<diagnosis::RankFacts> RankGroup::Facts() const {
  const std::vector<diagnosis::RankExit> failures = Failures();
  std::vector<diagnosis::RankFacts> all;
  for (const Rank& rank : ranks_) {
    diagnosis::RankFacts facts{rank.local_rank, rank.rank, rank.exit_status};
    for (const diagnosis::RankExit& failure : failures) {
      if (failure.local_rank == rank.local_rank) facts.exit_status = failure;
    }
    auto error = board_.ReadError(rank.local_rank);
    // The program has recovered from an error that is much older than its exit.
    const auto age = error && rank.exit_status ? wire::Age(error->at_ns, rank.ended) : std::nullopt;
    if (error && (!age || *age < kErrorBelongsToTheEnd)) {
      facts.code = error->code;
      facts.culprit = error->culprit;
      facts.failed_ns = error->at_ns;
      facts.text = std::move(error->text);
    }
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      const auto group = board_.ReadCollective(rank.local_rank, slot);
      // A send or receive involves only one peer, and a rendezvous is not a collective of the group.
      if (!group || group->operation == FULLDECK_BOARD_SEND || group->operation == FULLDECK_BOARD_RECEIVE ||
          group->operation == FULLDECK_BOARD_MEETING) {
        continue;
      }
      facts.groups.push_back({group->group, group->size, group->sequence, group->in_flight()});
    }
    facts.left_ns = board_.LastLeave(rank.local_rank);
    all.push_back(std::move(facts));
  }
  return all;
}

std::optional<std::uint64_t> RankGroup::BestStep() const {
  std::optional<std::uint64_t> best;
  for (const Rank& rank : ranks_) {
    const auto loop = board_.ReadLoop(rank.local_rank);
    if (loop && loop->step_at_ns != 0) best = std::max(best.value_or(0), loop->step);
  }
  return best;
}

}  // namespace fulldeck::launcher
