#include "launcher/supervisor.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/process_tree.h"
#include "launcher/progress.h"
#include "wire/exit_codes.h"
#include "wire/variables.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;
using wire::ExitCode;

constexpr milliseconds kKillInterval{200};
constexpr milliseconds kConsoleTimeout{2'000};
// A scheduler that ends a job signals every process of it, ranks first. The launcher's own copy follows within this
// time.
constexpr milliseconds kDirectSignalTimeout{100};
// Polling interval while other ranks may still report their collectives.
constexpr milliseconds kCallsPollInterval{50};
constexpr milliseconds kWatchTimeout{200};

}  // namespace

Supervisor::Supervisor(base::EventLoop& loop, std::unique_ptr<RunPlan> plan, CrashCleanupInfo& cleanup_info,
                       base::UniqueFd started_notice)
    : loop_(loop),
      plan_(std::move(plan)),
      cleanup_info_(cleanup_info),
      started_notice_(std::move(started_notice)),
      registry_(plan_->environment) {}

Supervisor::~Supervisor() = default;

void Supervisor::LogLine(const std::string& line) {
  logs_->LogLine("fulldeck: " + line);
  // A detached run also logs to its caller until it is in the background.
  if (started_notice_.valid()) base::Log(base::Severity::kInfo, line);
}

void Supervisor::Report(const events::Event& event) {
  switch (event.severity) {
    case events::Severity::kInfo:
      LogLine(event.message);
      break;
    case events::Severity::kWarning:
      LogLine("WARNING: " + event.message);
      break;
    case events::Severity::kError:
      LogLine("error: " + event.message);
      break;
  }
  Record(event);
}

void Supervisor::Record(events::Event event) {
  if (group_) event.fields.Set("attempt", std::int64_t{group_->start().attempt});
  const auto lost = event_log_.Append(event, loop_.clock().Now());
  if (lost) LogLine("WARNING: " + lost->message + "; later events are not recorded there");
}

base::Result<void> Supervisor::OpenEventLog() {
  const auto own = event_log_.Open(plan_->directory->events_log());
  if (!own) return own.error();
  const auto named = plan_->environment.Get(wire::kEventsVariable);
  if (!named || named->empty()) return {};
  const auto opened = event_log_.Open(*named);
  if (!opened) return base::Error{std::string(wire::kEventsVariable) + ": " + opened.error().message};
  return {};
}

std::string Supervisor::NameOf(const Rank& rank) const {
  const PlannedRank& planned = plan_->ranks[static_cast<std::size_t>(rank.local_rank)];
  return fmt::format("rank {} ({}{}, pid {})", rank.rank,
                     group_->start().group_world_size > 1 ? "host " + plan_->host_name + ", " : "",
                     planned.card ? device::NameOf(*planned.card) : "host processors", rank.pid);
}

int Supervisor::Run() {
  const auto prepared = Prepare();
  if (!prepared) {
    base::Log(base::Severity::kError, prepared.error().message);
    return static_cast<int>(ExitCode::kCannotStart);
  }
  if (plan_->flags.max_nodes > 1) {
    JoinNodes();
  } else {
    StartAlone(0);
  }
  KeepLeases();
  Tick();
  while (phase_ != Phase::kOver) loop_.RunOnce();
  logs_->Drain(kConsoleTimeout);
  registry_.Remove(record_);
  return exit_code_;
}

base::Result<void> Supervisor::Prepare() {
  const auto signals = WatchSignals();
  if (!signals) return signals.error();
  const auto no_color = plan_->environment.Get(wire::kNoColorVariable);
  // A console keeps its pipe open as long as it lives; a detached run must release the one of its caller.
  const bool detach = plan_->flags.detach;
  logs_ = std::make_unique<logs::LogFollower>(
      loop_, logs::LogFollowerOptions{.merged_path = plan_->directory->merged_log(),
                                      .stdout_fd = detach ? -1 : STDOUT_FILENO,
                                      .stderr_fd = detach ? -1 : STDERR_FILENO,
                                      .color = !no_color || no_color->empty(),
                                      .warn = [this](const std::string& line) { LogLine(line); }});
  const auto recorded = OpenEventLog();
  if (!recorded) return recorded.error();
  auto checks_off = diagnosis::ChecksOff(plan_->environment.Get(wire::kChecksOffVariable).value_or(""));
  if (!checks_off) return checks_off.error();
  checks_off_ = std::move(*checks_off);
  std::string why_not;
  const std::string& directory = plan_->directory->path();
  cgroup_ = RunCgroup::Make(fmt::format("{}-{}", directory.substr(directory.rfind('/') + 1), getpid()), &why_not);
  memory_before_ = ReadMemoryPressure();

  record_.run_id = plan_->run_id;
  record_.user = plan_->user;
  record_.host = plan_->host_name;
  record_.directory = plan_->directory->path();
  std::string folder(4096, '\0');
  record_.working_directory = getcwd(folder.data(), folder.size()) != nullptr ? folder.c_str() : "";
  record_.command = plan_->program;
  record_.front = wire::IdentityOf(getppid()).value_or(wire::ProcessIdentity());
  record_.supervisor = wire::ThisProcess();
  record_.started_unix_seconds = std::time(nullptr);
  record_.max_restarts = plan_->flags.max_restarts;
  record_.grace_milliseconds = static_cast<int>(plan_->flags.grace.count());
  for (const PlannedRank& rank : plan_->ranks) {
    record_.cards.emplace_back();
    if (rank.card) record_.cards.back() = {device::NameOf(*rank.card), rank.card->serial.value_or("")};
  }
  if (cgroup_) record_.cgroups = {cgroup_->folder()};
  SetCleanupField(cleanup_info_.run_id, sizeof cleanup_info_.run_id, plan_->run_id);
  if (cgroup_) SetCleanupField(cleanup_info_.cgroup, sizeof cleanup_info_.cgroup, cgroup_->folder());

  const std::size_t count = plan_->ranks.size();
  const bool on_cards = count > 0 && plan_->ranks.front().card.has_value();
  Report({"run-started",
          events::Severity::kInfo,
          {{"run", plan_->run_id},
           {"local_ranks", static_cast<std::int64_t>(count)},
           {"on_cards", on_cards},
           {"folder", plan_->directory->path()}},
          fmt::format("run {}: {} rank{} on {}; logs in {}", plan_->run_id, count, count == 1 ? "" : "s",
                      on_cards ? "cards" : "the host's processors", base::Printable(plan_->directory->path()))});
  if (on_cards) {
    for (const std::string& line : DescribePlacement(*plan_)) LogLine(line);
  }
  for (const std::string& cleanup_info : plan_->notes) LogLine(cleanup_info);
  return {};
}

// Reaps every child of this process, including orphans of the ranks; only ~CardWatch reaps its own process. Invariant:
// a rank without exit_status has not been reaped, so its pid cannot have been reused and may be signaled. Exits that
// are reaped in the same call have no known order; they share `turn_`.
void Supervisor::Reap() {
  ++turn_;
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid <= 0) break;
    if (card_watch_ && pid == card_watch_->pid()) OnCardWatchEnded();
    Rank* rank = group_ ? group_->Find(pid) : nullptr;
    if (rank == nullptr || rank->exit_status) continue;
    // A collection continued this rank for its stacks; the kernel reports our own action.
    if ((WIFSTOPPED(status) || WIFCONTINUED(status)) && stacks_ && stacks_->WasContinuedByUs(pid)) continue;
    if (WIFSTOPPED(status)) {
      group_->StoppedOrContinued(*rank, true, loop_.clock().Now());
      Report(
          {"rank-stopped",
           events::Severity::kWarning,
           {{"rank", std::int64_t{rank->rank}},
            {"pid", std::int64_t{pid}},
            {"signal", diagnosis::SignalName(WSTOPSIG(status))}},
           fmt::format("{} was stopped by {}: it does nothing, and the others will wait for it, until: kill -CONT {}{}",
                       NameOf(*rank), diagnosis::SignalName(WSTOPSIG(status)), pid, DescribeLastCall(*rank))});
    } else if (WIFCONTINUED(status)) {
      group_->StoppedOrContinued(*rank, false, loop_.clock().Now());
      Report({"rank-continued",
              events::Severity::kInfo,
              {{"rank", std::int64_t{rank->rank}}, {"pid", std::int64_t{pid}}},
              NameOf(*rank) + " runs again"});
    } else {
      OnRankEnded(*rank, status);
    }
  }
  if (group_ && phase_ == Phase::kRunning) {
    const std::vector<Rank>& ranks = group_->ranks();
    const auto failed = [](const Rank& rank) { return rank.exit_status && !rank.exit_status->exit_status.ok(); };
    if (std::any_of(ranks.begin(), ranks.end(), failed)) {
      // If all failed ranks died of a stop signal, the launcher's own copy may still be in transit. Wait for it before
      // calling this a failure.
      if (!OnlyStopSignalsKilled()) {
        StopAfterFailure();
      } else if (direct_signal_timer_ == 0) {
        direct_signal_timer_ = loop_.After(kDirectSignalTimeout, [this] {
          BeginStop(SIGTERM, plan_->flags.grace);
          CheckAllGone();
        });
      }
    }
  }
  CheckAllGone();
}

bool Supervisor::OnlyStopSignalsKilled() const {
  const std::vector<int> stops = StopSignals(plan_->flags);
  const std::vector<diagnosis::RankExit> failures = group_->Failures();
  return std::all_of(failures.begin(), failures.end(), [&](const diagnosis::RankExit& failure) {
    return std::find(stops.begin(), stops.end(), failure.exit_status.signal_number()) != stops.end();
  });
}

void Supervisor::OnRankEnded(Rank& rank, int wait_status) {
  const bool after_stop = phase_ != Phase::kRunning;
  group_->Ended(rank, wait_status, turn_, after_stop, loop_.clock().Now());
}

void Supervisor::StopAfterFailure() {
  loop_.Remove(calls_timer_);
  calls_timer_ = 0;
  if (SomeMayReportCalls()) {
    calls_timer_ = loop_.After(kCallsPollInterval, [this] {
      calls_timer_ = 0;
      if (phase_ == Phase::kRunning) StopAfterFailure();
    });
    return;
  }
  ReportDesync();
  BeginStop(SIGTERM, plan_->flags.grace);
}

// Invariant: an attempt leaves kRunning once, here or in CheckAllGone. Every exit that is reaped later counts as our
// doing (after_stop).
void Supervisor::BeginStop(int signal_number, milliseconds grace) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kStopping;
  stop_began_ = loop_.clock().Now();
  loop_.Remove(direct_signal_timer_);
  loop_.Remove(calls_timer_);
  direct_signal_timer_ = calls_timer_ = 0;
  EndCardWatch(false);
  EndHangWatch();
  group_->Signal(signal_number);
  if (nodes_ && !elsewhere_) nodes_->Failed(LocalFailure());
  kill_timer_ = loop_.After(grace, [this] {
    if (group_->alive() > 0) {
      LogLine(fmt::format("{} rank{} still there after {}: killing", group_->alive(),
                          group_->alive() == 1 ? " is" : "s are",
                          base::FormatSeconds(loop_.clock().Now() - stop_began_)));
    }
    KillEverything();
  });
}

void Supervisor::KillEverything() {
  if (killed_) return;
  killed_ = true;
  loop_.Remove(kill_timer_);
  kill_began_ = loop_.clock().Now();
  KillAgain();
}

// Repeats until no child is left (then CheckAllGone ends the attempt and removes the timer) or kKillTimeout has
// expired: a forking tree can outrun a single pass.
void Supervisor::KillAgain() {
  if (cgroup_) cgroup_->Kill();
  SignalDescendants(getpid(), SIGKILL);
  const base::Duration left = kKillTimeout - (loop_.clock().Now() - kill_began_);
  if (left <= base::Duration(0)) return GiveUpKilling();
  kill_timer_ = loop_.After(std::min<base::Duration>(left, kKillInterval), [this] { KillAgain(); });
}

void Supervisor::GiveUpKilling() {
  std::vector<TreeProcess> left = Descendants(getpid());
  for (const TreeProcess& process : left) {
    LogLine(fmt::format(
        "error: pid {} ({}) cannot be killed; it is in state {} inside the kernel (a driver, a frozen cgroup or "
        "a dead network disk holds it)",
        process.pid, process.command, process.state));
  }
  gave_up_killing_ = true;
  AttemptOver();
}

void Supervisor::CheckAllGone() {
  if (!group_ || gave_up_killing_ || (phase_ != Phase::kRunning && phase_ != Phase::kStopping)) return;
  if (group_->alive() > 0 || direct_signal_timer_ != 0) return;
  if (WaitForLastReading()) return;
  const bool watched = card_watch_ != nullptr;
  card_watch_.reset();
  // Invariant: as a subreaper this process is the parent of every orphan below it. Without children there is no process
  // of the attempt left.
  if (!HasChildren()) return AttemptOver();
  if (swept_ || killed_) return;
  if (watched) {
    // A vendor helper of the watch dies with it shortly.
    loop_.After(kWatchTimeout, [this] { CheckAllGone(); });
    return;
  }
  // Every rank has ended, but a process that they started is still running.
  swept_ = true;
  if (phase_ == Phase::kRunning) {
    const std::vector<TreeProcess> left = Descendants(getpid());
    if (!left.empty()) {
      std::vector<int> pids;
      for (const TreeProcess& process : left) pids.push_back(static_cast<int>(process.pid));
      Report({"processes-left",
              events::Severity::kInfo,
              {{"pids", events::Numbers(pids)}},
              fmt::format("{} process{} that the ranks started {} still running ({} …); asking {} to end", left.size(),
                          left.size() == 1 ? "" : "es", left.size() == 1 ? "is" : "are", left.front().command,
                          left.size() == 1 ? "it" : "them")});
    }
    phase_ = Phase::kStopping;
    stop_began_ = loop_.clock().Now();
    kill_timer_ = loop_.After(plan_->flags.grace, [this] { KillEverything(); });
  }
  SignalDescendants(getpid(), SIGTERM);
}

// Invariant: when this is called, no process of the attempt is left, or gave_up_killing_ is set and the remaining ones
// were reported. A restart therefore never runs next to the previous attempt.
void Supervisor::AttemptOver() {
  loop_.Remove(kill_timer_);
  kill_timer_ = 0;
  EndHangWatch();
  phase_ = Phase::kPausing;
  logs_->Drain(kConsoleTimeout);
  for (const Rank& rank : group_->ranks()) {
    struct stat facts {};
    if (stat(rank.files.crash_path.c_str(), &facts) == 0 && facts.st_size == 0) unlink(rank.files.crash_path.c_str());
  }
  const std::vector<diagnosis::RankExit> failures = group_->Failures();
  const bool ended_well = failures.empty() && user_signal_ == 0 && !proxy_died_ && !idle_failed_ && !hung_ &&
                          !could_not_start_ && !elsewhere_;
  NameSilentFaults(ended_well);
  ReportLostLogs(true);
  EndCardWatch(ended_well);
  const bool good = ended_well && !idle_failed_;
  if (nodes_ && ended_well && idle_failed_) nodes_->Failed(LocalFailure());
  if (nodes_) return good ? nodes_->Succeeded() : nodes_->Stopped();
  if (good) return Finish(static_cast<int>(gave_up_killing_ ? ExitCode::kLeftBehind : ExitCode::kOk));
  if (could_not_start_) return Finish(exit_code_);
  DecideAlone();
}

void Supervisor::DecideAlone() {
  const std::vector<diagnosis::RankExit> failures = group_->Failures();
  const auto root = diagnosis::RootCause(failures);
  // A rank that died of the same signal as the launcher received was stopped together with it.
  const bool began_by_itself =
      root && !failures[*root].after_stop && failures[*root].exit_status.signal_number() != user_signal_;
  if (user_signal_ != 0 && !began_by_itself) {
    LogLine(fmt::format("stopped by {} in {}", diagnosis::SignalName(user_signal_),
                        base::FormatSeconds(loop_.clock().Now() - stop_began_)));
    return Finish(gave_up_killing_ ? static_cast<int>(ExitCode::kLeftBehind) : 128 + user_signal_);
  }
  if (proxy_died_) return Finish(128 + SIGKILL);
  if (!idle_failed_ && !hung_) ReportFailure();
  if (gave_up_killing_) return Finish(static_cast<int>(ExitCode::kLeftBehind));
  if (idle_failed_) return Finish(static_cast<int>(ExitCode::kIdleCard));
  const auto began = FindRoot();
  int code = began ? ExitCodeOf(*began) : static_cast<int>(ExitCode::kFailed);
  if (hung_) code = static_cast<int>(ExitCode::kHang);
  const bool of_a_rank = began && !hung_;
  if (user_signal_ != 0 || (hung_ && plan_->flags.on_hang == job::OnHang::kFail)) return Finish(code, of_a_rank);
  attempts_.push_back(
      {std::chrono::duration_cast<milliseconds>(loop_.clock().Now() - attempt_began_), group_->BestStep()});
  const RestartDecision decision = AfterAttempt(attempts_, plan_->flags.max_restarts);
  switch (decision.what) {
    case AfterFailure::kRestart: {
      const int next = static_cast<int>(attempts_.size());
      Report({"restart",
              events::Severity::kInfo,
              {{"number", std::int64_t{next}}, {"most", std::int64_t{plan_->flags.max_restarts}}},
              fmt::format("restart {} of {} in {}", next, plan_->flags.max_restarts,
                          base::FormatSeconds(decision.delay))});
      loop_.After(decision.delay, [this, next] {
        if (phase_ == Phase::kPausing) StartAlone(next);
      });
      return;
    }
    case AfterFailure::kCrashLoop:
      LogLine(fmt::format(
          "error: crash loop: {} attempts in a row made no progress; no further restart, though {} would be left", 3,
          plan_->flags.max_restarts - static_cast<int>(attempts_.size()) + 1));
      return Finish(static_cast<int>(ExitCode::kCrashLoop));
    case AfterFailure::kGiveUp:
      return Finish(code, of_a_rank);
  }
}

void Supervisor::KeepLeases() {
  loop_.After(std::chrono::hours(1), [this] {
    plan_->leases.Refresh();
    KeepLeases();
  });
}

void Supervisor::Tick() {
  loop_.After(std::chrono::seconds(1), [this] { Tick(); });
  if (phase_ != Phase::kRunning || !group_) return;
  if (nodes_) nodes_->SetProgress(group_->BestStep().value_or(0));
  NameSilentFaults(false);
  ReportLostLogs(false);
  if (!plan_->flags.progress) return;
  std::string line = ProgressLine(group_->board(), loop_.clock().Now() - attempt_began_);
  if (!waiting_text_.empty()) line += (line.empty() ? "" : "; ") + waiting_text_;
  if (!line.empty()) logs_->ShowProgress("fulldeck: " + line);
}

void Supervisor::NameSilentFaults(bool ended_well) {
  const base::TimePoint now = loop_.clock().Now();
  const std::vector<diagnosis::RankSnapshot> ranks = diagnosis::TakeSnapshots(group_->board(), now);
  summary_.Update(ranks);
  std::vector<events::Event> found =
      ended_well ? silent_faults_->CheckAtEnd(ranks, now) : silent_faults_->Update(ranks, now);
  for (auto& more :
       {script_faults_->Update(diagnosis::ObservationsOn(group_->board()), ended_well), admissions_->Found()}) {
    found.insert(found.end(), more.begin(), more.end());
  }
  std::erase_if(found, [this](const events::Event& event) {
    return event.id == "silent-error" && checks_off_.contains(event.fields.Text("code"));
  });
  for (const events::Event& event : found) {
    if (event.id == "silent-error" && event.severity == events::Severity::kWarning) ++silent_errors_;
    Report(event);
  }
}

void Supervisor::ReportLostLogs(bool last) {
  lost_log_bytes_.resize(group_->ranks().size());
  for (const Rank& rank : group_->ranks()) {
    std::uint64_t& reported = lost_log_bytes_[static_cast<std::size_t>(rank.local_rank)];
    const std::uint64_t lost = group_->board().LostLogBytes(rank.local_rank);
    if (lost == reported || (reported > 0 && !last)) continue;
    reported = lost;
    Report(
        {"log-lost",
         events::Severity::kWarning,
         {{"rank", std::int64_t{rank.rank}}, {"bytes", static_cast<std::int64_t>(lost)}},
         fmt::format("rank {}: {} of its output {} lost, because {} has no room for them. The rank goes on", rank.rank,
                     base::FormatByteSize(lost), last ? "were" : "are", base::Printable(rank.files.stderr_path))});
  }
}

void Supervisor::Finish(int exit_code, bool from_rank) {
  if (exit_code == 0 && plan_->flags.strict && silent_errors_ > 0) exit_code = static_cast<int>(ExitCode::kSilentError);
  exit_code_ = exit_code;
  phase_ = Phase::kOver;
  if (from_rank && wire::IsVerdict(exit_code)) {
    LogLine(fmt::format("exit code {} is the script's own here, and no verdict of fulldeck", exit_code));
  }
  if (const auto summary = summary_.AtTheEnd(group_ ? group_->start().world_size : 1)) Report(*summary);
  Record({"run-finished",
          events::Severity::kInfo,
          {{"run", plan_->run_id},
           {"exit_code", std::int64_t{exit_code}},
           {"exit_code_source", std::string(from_rank || exit_code == 0 ? "script" : "fulldeck")}},
          fmt::format("run {} ended with exit code {}", plan_->run_id, exit_code)});
}

}  // namespace fulldeck::launcher
