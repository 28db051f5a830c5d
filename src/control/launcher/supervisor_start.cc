// Supervisor: starting an attempt.
#include "launcher/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "launcher/launch_info.h"
#include "wire/exit_codes.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;
using wire::ExitCode;

}  // namespace

void Supervisor::StartAlone(int attempt) {
  nodes::AttemptStart start;
  start.attempt = attempt;
  start.world_size = static_cast<int>(plan_->ranks.size());
  start.master_addr = plan_->flags.endpoint_host;
  if (plan_->named_port) {
    start.master_port = plan_->named_port->number();
  } else {
    auto port = net::MasterPort::Free();
    if (!port) {
      LogLine("error: " + port.error().message);
      return Finish(static_cast<int>(ExitCode::kCannotStart));
    }
    port_ = std::move(*port);
    start.master_port = port_->number();
  }
  StartAttempt(start);
}

void Supervisor::StartAttempt(const nodes::AttemptStart& start) {
  elsewhere_.reset();
  desync_.reset();
  lost_log_bytes_.clear();
  killed_ = swept_ = hung_ = false;
  attempt_began_ = loop_.clock().Now();
  auto group = RankGroup::Prepare(*plan_, start);
  if (!group) {
    LogLine("error: " + group.error().message);
    return Finish(static_cast<int>(ExitCode::kCannotStart));
  }
  group_.emplace(std::move(*group));
  silent_faults_.emplace(start.world_size);
  script_faults_.emplace(start.world_size, plan_->flags.share_cards);
  admissions_.emplace(start.world_size, !plan_->ranks.empty() && plan_->ranks.front().card.has_value());
  silent_errors_ = 0;
  summary_ = diagnosis::RunSummary();
  for (const Rank& rank : group_->ranks()) {
    if (rank.has_no_log) {
      Report({"log-lost",
              events::Severity::kWarning,
              {{"rank", std::int64_t{rank.rank}}, {"bytes", std::int64_t{0}}},
              fmt::format("rank {}: its output is lost in this attempt, because {} has no room for its files. The rank "
                          "goes on",
                          rank.rank, base::Printable(plan_->directory->path()))});
      continue;
    }
    const auto followed = FollowRank(rank);
    if (!followed) LogLine("warning: " + followed.error().message);
  }
  phase_ = Phase::kRunning;
  for (auto* port : {&port_, &plan_->named_port}) {
    if (*port) (*port)->LetStoreBind();
  }
  const auto started = group_->Start(*plan_, cgroup_);
  if (!started) {
    LogLine("error: " + started.error().message);
    exit_code_ = static_cast<int>(ExitCode::kCannotStart);
    could_not_start_ = true;
    BeginStop(SIGKILL, milliseconds(0));
    return CheckAllGone();
  }
  if (group_->cgroup_error() != 0 && start.attempt == 0) {
    LogLine(
        fmt::format("warning: ranks could not enter the run's cgroup {}: {}. What they leave behind is found by their "
                    "sessions and variables alone",
                    cgroup_->folder(), std::generic_category().message(group_->cgroup_error())));
  }
  Register();
  if (start.group_world_size > 1 || start.attempt > 0) {
    LogLine(fmt::format("attempt {}: ranks {} to {} of {} started; rank 0 listens on {}:{}", start.attempt,
                        start.first_rank, start.first_rank + static_cast<int>(plan_->ranks.size()) - 1,
                        start.world_size, start.master_addr, start.master_port));
  }
  WatchCards();
  WatchHangs();
  if (started_notice_.valid()) {
    base::Log(
        base::Severity::kInfo,
        fmt::format("run {} is in the background. See it with: fulldeck logs -f {}; end it with: fulldeck stop {}",
                    plan_->run_id, plan_->run_id, plan_->run_id));
    [[maybe_unused]] const auto written = write(started_notice_.get(), "+", 1);
    started_notice_.Reset();
    ReleaseTerminal();
  }
  Reap();
}

base::Result<void> Supervisor::FollowRank(const Rank& rank) {
  const job::LaunchFlags& flags = plan_->flags;
  const auto& shown = flags.shown_local_ranks;
  const bool listed = shown.empty() || std::find(shown.begin(), shown.end(), rank.local_rank) != shown.end();
  const bool alone = group_->start().world_size == 1;
  const std::string attempt = plan_->directory->attempt_folder(group_->start().attempt);
  const auto follow = [&](job::Streams stream, const std::string& path, int console,
                          const std::vector<std::string>& filters, const char* filtered) -> base::Result<void> {
    const auto has = [&](job::Streams streams) { return (static_cast<int>(streams) & static_cast<int>(stream)) != 0; };
    const bool redirected = has(flags.redirects.For(rank.local_rank));
    const bool teed = flags.tee && has(flags.tee->For(rank.local_rank));
    logs::FollowedStream followed;
    followed.path = path;
    followed.prefix = alone ? "" : fmt::format("[{}] ", rank.rank);
    followed.color = alone ? 0 : 31 + rank.rank % 6;
    followed.console_fd = listed && (teed || !redirected) ? console : -1;
    followed.filters = filters;
    followed.filtered_path = attempt + "/" + filtered;
    followed.on_line = [this, number = rank.rank](std::string_view line) { admissions_->Take(number, line); };
    return logs_->Follow(std::move(followed));
  };
  const auto out =
      follow(job::Streams::kStdout, rank.files.stdout_path, STDOUT_FILENO, flags.stdout_filters, "filtered_stdout.log");
  if (!out) return out.error();
  return follow(job::Streams::kStderr, rank.files.stderr_path, STDERR_FILENO, flags.stderr_filters,
                "filtered_stderr.log");
}

void Supervisor::Register() {
  const nodes::AttemptStart& start = group_->start();
  record_.board_fd = group_->board().fd();
  record_.attempt = start.attempt;
  record_.first_rank = start.first_rank;
  record_.world_size = start.world_size;
  record_.group_rank = start.group_rank;
  record_.group_world_size = start.group_world_size;
  record_.ranks.clear();
  for (const Rank& rank : group_->ranks()) {
    record_.ranks.push_back({rank.local_rank, wire::IdentityOf(rank.pid).value_or(wire::ProcessIdentity{rank.pid, 0})});
  }
  const auto path = registry_.Write(record_);
  if (!path) {
    if (start.attempt == 0) LogLine("warning: fulldeck ps and stop will not find this run: " + path.error().message);
  } else {
    SetCleanupField(cleanup_info_.registry_entry, sizeof cleanup_info_.registry_entry, *path);
  }
  // For later analysis; the run does not depend on it.
  const auto noted = WriteLaunchInfo(plan_->environment, record_);
  if (!noted && start.attempt == 0) LogLine("warning: " + noted.error().message);
}

}  // namespace fulldeck::launcher
