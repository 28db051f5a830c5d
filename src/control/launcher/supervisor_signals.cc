// Supervisor: signals from users and schedulers.
#include "launcher/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "launcher/process_tree.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;

// The front is dead, so the ranks get only a short grace period.
constexpr milliseconds kGraceWithoutProxy{300};

}  // namespace

base::Result<void> Supervisor::WatchSignals() {
  std::vector<int> signals = TakenSignals(plan_->flags);
  signals.insert(signals.end(), {ForwardedAs(SIGUSR1), ForwardedAs(SIGUSR2), SIGCHLD, ProxyDiedSignal()});
  return loop_.OnSignals(signals, [this](int signal_number) { OnSignal(signal_number); });
}

void Supervisor::OnSignal(int signal_number) {
  if (signal_number == SIGCHLD) return Reap();
  if (signal_number == ProxyDiedSignal()) {
    proxy_died_ = true;
    if (logs_) LogLine("error: the launcher's front process was killed; the ranks are stopped");
    if (phase_ == Phase::kRunning) return BeginStop(SIGTERM, kGraceWithoutProxy);
    if (phase_ == Phase::kStopping) return KillEverything();
    return Finish(128 + SIGKILL);
  }
  for (const int passed : {SIGUSR1, SIGUSR2}) {
    if (signal_number == ForwardedAs(passed)) return OnUserSignal(passed, true);
  }
  const std::vector<int> stops = StopSignals(plan_->flags);
  if (std::find(stops.begin(), stops.end(), signal_number) == stops.end()) return OnUserSignal(signal_number, false);

  const bool again = user_signal_ != 0 && cleanup_info_.stops_forwarded > 1;
  if (user_signal_ == 0) user_signal_ = signal_number;
  switch (phase_) {
    case Phase::kRunning:
      LogLine(fmt::format("{} received: stopping {} rank{}, at most {} s. A second one kills them at once",
                          diagnosis::SignalName(signal_number), group_->alive(), group_->alive() == 1 ? "" : "s",
                          std::chrono::duration_cast<std::chrono::seconds>(plan_->flags.grace).count()));
      BeginStop(signal_number, plan_->flags.grace);
      return CheckAllGone();
    case Phase::kStopping:
      if (again) KillEverything();
      return;
    case Phase::kRendezvous:
    case Phase::kPausing:
      LogLine(fmt::format("{} received: the run ends", diagnosis::SignalName(signal_number)));
      if (nodes_) return nodes_->Failed(LocalFailure());
      return Finish(128 + signal_number);
    case Phase::kOver:
      return;
  }
}

void Supervisor::OnUserSignal(int signal_number, bool from_proxy) {
  UserSignal& state = user_signals_[signal_number == SIGUSR1 ? 0 : 1];
  const base::TimePoint now = loop_.clock().Now();
  const bool ranks_have_it = from_proxy ? state.deduplicator.CameFromProxy(now) : state.deduplicator.CameDirectly(now);
  if (ranks_have_it) {
    loop_.Remove(state.timer);
    state.timer = 0;
    LogLine(fmt::format("{} was sent to every process of the job, the ranks too: it is not passed on",
                        diagnosis::SignalName(signal_number)));
  } else if (from_proxy && state.timer == 0) {
    state.timer = loop_.After(SignalDeduplicator::kDirectSignalWait, [this, &state, signal_number] {
      state.timer = 0;
      state.deduplicator.Forwarded();
      ForwardSignal(signal_number);
    });
  }
}

void Supervisor::ForwardSignal(int signal_number) {
  if (phase_ != Phase::kRunning || !group_) return;
  int reached = 0;
  std::vector<std::string> deaf;
  for (const Rank& rank : group_->ranks()) {
    if (rank.exit_status) continue;
    if (CatchesSignal(rank.pid, signal_number)) {
      kill(rank.pid, signal_number);
      ++reached;
    } else {
      deaf.push_back(std::to_string(rank.rank));
    }
  }
  if (reached > 0)
    LogLine(fmt::format("{} passed on to {} rank{}", diagnosis::SignalName(signal_number), reached,
                        reached == 1 ? "" : "s"));
  bool& warned = user_signals_[signal_number == SIGUSR1 ? 0 : 1].warned;
  if (!deaf.empty() && !warned) {
    warned = true;
    LogLine(fmt::format("warning: {} was not passed on to rank {}, which {} not catch it and would die of it",
                        diagnosis::SignalName(signal_number), base::Join(deaf, ", "),
                        deaf.size() == 1 ? "does" : "do"));
  }
}

}  // namespace fulldeck::launcher
