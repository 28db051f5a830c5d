// Supervisor: communication with the launchers of other nodes.
#include "launcher/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/clock.h"
#include "job/launch/cluster.h"
#include "wire/exit_codes.h"
#include "wire/variables.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;
using wire::ExitCode;

constexpr int kDefaultRendezvousPort = 29500;

}  // namespace

void Supervisor::JoinNodes() {
  const job::LaunchFlags& flags = plan_->flags;
  nodes::NodeGroupOptions options;
  options.endpoint_host = flags.endpoint_host;
  options.endpoint_port = flags.endpoint_port.value_or(kDefaultRendezvousPort);
  options.node_rank = flags.node_rank;
  options.is_host = flags.is_host;
  options.min_nodes = flags.min_nodes;
  options.max_nodes = flags.max_nodes;
  options.local_ranks = static_cast<int>(plan_->ranks.size());
  options.token = plan_->environment.Get(wire::kTokenVariable).value_or(flags.rdzv_id.value_or(""));
  options.host_name = plan_->host_name;
  options.local_addr = flags.local_addr;
  options.join_timeout = flags.join_timeout;
  options.last_call_timeout = flags.last_call_timeout;
  if (flags.silence_limit) options.silence_limit = *flags.silence_limit;
  options.stop_timeout = flags.grace + kKillTimeout + milliseconds(3'000);
  // Every user of a cluster can see the job ids.
  const auto cluster = job::ReadCluster(plan_->environment);
  const bool is_job_id = cluster && *cluster && !options.token.empty() && (*cluster)->job_id == options.token;
  if (options.token.empty() || is_job_id) {
    Report({"token-weak",
            events::Severity::kWarning,
            {{"source", std::string(is_job_id ? "job-id" : "none")}},
            fmt::format("{} reaches {}:{} can join this run; give all hosts the same secret in {}",
                        is_job_id ? "the job id is the token of this run, and who knows it and" : "whoever",
                        options.endpoint_host, options.endpoint_port, wire::kTokenVariable)});
  }

  nodes::NodeGroupEvents events;
  events.take_master_port = [this]() -> base::Result<int> {
    if (plan_->named_port) return plan_->named_port->number();
    auto port = net::MasterPort::Free();
    if (!port) return port.error();
    port_ = std::move(*port);
    return port_->number();
  };
  events.start = [this](const nodes::AttemptStart& start) { StartAttempt(start); };
  events.stop = [this](const nodes::NodeFailure& failure) {
    elsewhere_ = failure;
    if (phase_ == Phase::kRunning) BeginStop(SIGTERM, plan_->flags.grace);
  };
  events.finished = [this](const std::optional<nodes::NodeFailure>& failure) {
    if (!failure) return Finish(0);
    elsewhere_ = failure;
    ReportFailure();
    if (user_signal_ != 0) return Finish(128 + user_signal_);
    if (crash_loop_) return Finish(static_cast<int>(ExitCode::kCrashLoop));
    // A local rank may exit with one of fulldeck's own codes; from other nodes such a code is treated as a verdict.
    const int code = std::max(failure->exit_code, 1);
    const auto began = FindRoot();
    Finish(code, !wire::IsVerdict(code) || (!hung_ && !idle_failed_ && began && ExitCodeOf(*began) == code));
  };
  events.restarting = [this](const nodes::NodeFailure& failure, base::Duration delay) {
    elsewhere_ = failure;
    ReportFailure();
    LogLine(fmt::format("all hosts start again in {}", base::FormatSeconds(delay)));
  };
  events.restart = [this](const nodes::NodeFailure& failure) -> std::optional<base::Duration> {
    if (proxy_died_) return std::nullopt;
    attempts_.push_back({std::chrono::duration_cast<milliseconds>(loop_.clock().Now() - attempt_began_),
                         failure.best_step > 0 ? std::optional(failure.best_step) : std::nullopt});
    const RestartDecision decision = AfterAttempt(attempts_, plan_->flags.max_restarts);
    if (decision.what == AfterFailure::kRestart) return decision.delay;
    crash_loop_ = decision.what == AfterFailure::kCrashLoop;
    if (crash_loop_) LogLine("error: crash loop: three attempts in a row made no progress");
    return std::nullopt;
  };
  events.gave_up = [this](const std::string& reason) {
    LogLine("error: " + reason);
    Finish(static_cast<int>(ExitCode::kHosts));
  };
  events.report = [this](const std::string& line) { LogLine(line); };
  nodes_ = std::make_unique<nodes::NodeGroup>(loop_, std::move(options), std::move(events));
  const auto joined = nodes_->Join();
  if (!joined) {
    LogLine("error: " + joined.error().message);
    Finish(static_cast<int>(ExitCode::kHosts));
  }
}

nodes::NodeFailure Supervisor::LocalFailure() const {
  nodes::NodeFailure failure;
  failure.group_rank = group_ ? group_->start().group_rank : -1;
  failure.host_name = plan_->host_name;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  failure.unix_nanoseconds = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  failure.best_step = group_ ? group_->BestStep().value_or(0) : 0;
  if (hung_ && user_signal_ == 0) {
    failure.summary = fmt::format("rank {} hung", hang_alarm_ ? group_->start().first_rank + hang_alarm_->culprit : 0);
    failure.exit_code = static_cast<int>(ExitCode::kHang);
    failure.by_request = plan_->flags.on_hang == job::OnHang::kFail;  // no further attempt
    return failure;
  }
  if (group_) {
    const std::vector<diagnosis::RankExit> failures = group_->Failures();
    const auto root = diagnosis::RootCause(failures);
    if (root && (user_signal_ == 0 || failures[*root].exit_status.signal_number() != user_signal_)) {
      failure.seen_at = group_->ranks()[static_cast<std::size_t>(failures[*root].local_rank)].ended;
      const auto began = FindRoot();
      failure.summary = DescribeRoot(*began);
      failure.exit_code = ExitCodeOf(*began);
      return failure;
    }
  }
  if (user_signal_ != 0) {
    failure.by_request = true;
    failure.summary = fmt::format("its launcher was stopped by {}", diagnosis::SignalName(user_signal_));
    failure.exit_code = 128 + user_signal_;
  } else if (idle_failed_) {
    failure.summary = "a card stayed idle";
    failure.exit_code = static_cast<int>(ExitCode::kIdleCard);
  } else if (could_not_start_) {
    failure.summary = "its ranks could not be started";
    failure.exit_code = exit_code_;
  } else if (proxy_died_) {
    failure.summary = "its launcher was killed";
    failure.exit_code = 128 + SIGKILL;
  }
  return failure;
}

}  // namespace fulldeck::launcher
