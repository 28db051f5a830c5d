#include "nodes/host_coordinator.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/text.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

// For a last word to arrive. Only a link that is dying needs it whole.
constexpr base::Duration kGoodbyePatience = 1s;

std::string CountOf(int count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

}  // namespace

HostCoordinator::HostCoordinator(HostGroupCore& core, base::UniqueFd listener, std::string address)
    : core_(core),
      address_(std::move(address)),
      departing_(core.loop),
      last_words_(core.loop),
      begun_(core.Now()),
      stalls_(core.options.silence_limit),
      tick_(base::Duration(core.options.silence_limit) / 16),
      tick_timer_(core.loop),
      report_timer_(core.loop),
      join_timer_(core.loop),
      last_call_timer_(core.loop),
      patience_timer_(core.loop),
      delay_timer_(core.loop) {
  auto here = std::make_unique<Host>();
  here->entry = {base::Printable(core_.options.host_name), address_.empty() ? "all interfaces" : address_,
                 core_.options.node_rank, core_.options.local_ranks};
  hosts_.push_back(std::move(here));
  reception_ = std::make_unique<HostReception>(
      core_, std::move(listener),
      [this](std::unique_ptr<net::MessageLink> link, const JoinMessage& join) { OnArrival(std::move(link), join); });
  join_timer_.Set(core_.options.join_timeout, [this] {
    GiveUp("the hosts did not come together within " + InSeconds(core_.options.join_timeout) + ": " +
           WhoIsMissing(Entries(), core_.options));
  });
  report_timer_.Set(core_.options.report_interval, [this] { SayWhoIsMissing(); });
  Tick();
  CheckGathered();
}

HostCoordinator::~HostCoordinator() = default;

// Gathering.

void HostCoordinator::OnArrival(std::unique_ptr<net::MessageLink> link, const JoinMessage& join) {
  const std::string address = join.address.value_or(link->remote_address());
  // A launcher that was started again comes before its dead predecessor is given up.
  if (const auto older = FindNodeRank(Entries(), join.node_rank); older && *older != 0 && phase_ != Phase::kRunning) {
    Host& host = *hosts_[*older];
    if (host.pulse->QuietFor(core_.Now()) > 3 * host.pulse->interval()) Lose(host, LossKind::kSilent, "");
  }
  std::optional<std::string> reason;
  if (phase_ == Phase::kEnding) {
    reason = "the run is over";
  } else if (phase_ == Phase::kRunning) {
    reason = "the run has begun with " + CountOf(static_cast<int>(hosts_.size()), "host");
  } else {
    reason = WhyNotJoin(Entries(), core_.options, join, address);
  }
  if (reason) {
    core_.Say("turned away host " + join.host_name + " (" + address + "): " + *reason);
    if (reception_) reception_->TurnAway(std::move(link), *reason);
    return;
  }
  auto host = std::make_unique<Host>();
  host->entry = {join.host_name, address, join.node_rank, join.ranks};
  host->link = std::move(link);
  host->pulse.emplace(core_.Now(), core_.options.silence_limit);
  Host* const who = host.get();
  net::MessageLink::Handlers handlers;
  handlers.message = [this, who](std::string_view text) { OnMessage(*who, text); };
  handlers.ended = [this, who](const net::MessageLink::End& end) {
    switch (end.kind) {
      case net::MessageLink::EndKind::kClosed:
        return Lose(*who, LossKind::kVanished, end.reason);
      case net::MessageLink::EndKind::kBroken:
        return Lose(*who, LossKind::kBroken, end.reason);
      case net::MessageLink::EndKind::kNotOurs:
      case net::MessageLink::EndKind::kOtherVersion:
        return Lose(*who, LossKind::kUnintelligible, end.reason);
    }
  };
  host->link->SetHandlers(std::move(handlers));
  hosts_.push_back(std::move(host));
  std::erase(lost_, NameOf(who->entry));
  self().entry.address = OwnAddress();
  const int hosts = static_cast<int>(hosts_.size());
  who->link->Send(EncodeHostMessage(JoinedMessage{self().entry.host_name, hosts}));
  core_.Say(NameOf(who->entry) + " joined with " + CountOf(join.ranks, "rank") + ": " + std::to_string(hosts) + " of " +
            HostRange(core_.options.min_hosts, core_.options.max_hosts) + " hosts");
  last_call_timer_.Cancel();
  if (phase_ == Phase::kGathering) CheckGathered();
  if (phase_ == Phase::kBetween) CheckReadyAgain();
}

void HostCoordinator::CheckGathered() {
  const int hosts = static_cast<int>(hosts_.size());
  if (hosts < core_.options.min_hosts) return last_call_timer_.Cancel();
  // From the loop: this may be the constructor, or a handler of a link that the start would find in the middle of its
  // work.
  const base::Duration wait =
      hosts == core_.options.max_hosts ? base::Duration(0) : base::Duration(core_.options.last_call_timeout);
  if (hosts == core_.options.max_hosts || !last_call_timer_.is_set()) {
    last_call_timer_.Set(wait, [this] { StartAttempt(); });
  }
}

void HostCoordinator::SayWhoIsMissing() {
  report_timer_.Set(core_.options.report_interval, [this] { SayWhoIsMissing(); });
  const std::string text = "after " + InSeconds(core_.Now() - begun_) + " " + WhoIsMissing(Entries(), core_.options);
  core_.Say(text);
  Broadcast(WaitingMessage{text});
}

void HostCoordinator::GiveUp(const std::string& reason) {
  std::string text = reason;
  if (hosts_.size() == 1 && (address_.starts_with("127.") || address_ == "::1")) {
    text += ". The meeting point " + address_ + " is this host only: no other one can reach it";
  }
  Broadcast(GaveUpMessage{text});
  WhenAllKnow([this, text] { core_.GaveUp(text); });
}

// An attempt.

void HostCoordinator::StartAttempt() {
  report_timer_.Cancel();
  join_timer_.Cancel();
  last_call_timer_.Cancel();
  delay_timer_.Cancel();
  CHECK(core_.events.take_master_port);
  const auto port = core_.events.take_master_port();
  if (!port) {
    const std::string reason = "no port for the ranks on " + NameOf(self().entry) + ": " + port.error().message;
    if (attempt_ < 0) return GiveUp(reason);
    HostFailure failure = Root();
    failure.summary += "; no restart: " + reason;
    return Farewell(failure);
  }
  AttemptStart start;
  start.attempt = ++attempt_;
  start.master_port = *port;
  const auto entries = Entries();
  const auto order = OrderOfHosts(entries);
  start.group_world_size = static_cast<int>(order.size());
  start.world_size = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const RosterEntry& entry = entries[order[rank]];
    hosts_[order[rank]]->group_rank = static_cast<int>(rank);
    start.members.push_back({entry.host_name, entry.address, start.world_size, entry.ranks});
    start.world_size += entry.ranks;
  }
  CHECK(self().group_rank == 0);
  attempt_began_ = core_.Now();
  first_ = FirstFailure();
  lost_.clear();
  phase_ = Phase::kRunning;
  for (const auto& host : hosts_) {
    host->succeeded = host->ranks_gone = host->failed = false;
    host->best_step = 0;
    start.group_rank = host->group_rank;
    start.first_rank = start.members[static_cast<std::size_t>(host->group_rank)].first_rank;
    // A member takes the address by which it reached this host, unless the user named one.
    start.master_addr = !host->link ? OwnAddress() : core_.options.local_addr ? address_ : "";
    if (host->link) {
      host->link->Send(EncodeHostMessage(StartMessage{start}));
    } else {
      start.members.front().address = start.master_addr;
      core_.Start(start);
    }
  }
  core_.best_step = 0;
}

base::TimePoint HostCoordinator::WithinAttempt(base::TimePoint when) const {
  return std::clamp(when, attempt_began_, core_.Now());
}

void HostCoordinator::OnFailure(Host& host, HostFailure failure, base::TimePoint when) {
  failure.group_rank = host.group_rank;
  failure.host_name = host.entry.host_name;
  host.failed = true;
  first_.Add(failure, WithinAttempt(when));
  if (phase_ == Phase::kRunning) BeginToStop();
}

void HostCoordinator::BeginToStop() {
  phase_ = Phase::kStopping;
  const HostFailure failure = Root();
  for (const auto& host : hosts_) {
    if (host->succeeded) host->ranks_gone = true;
    if (host->failed) continue;
    if (host->link) {
      host->link->Send(EncodeHostMessage(StopMessage{attempt_, failure}));
    } else {
      core_.Stop(failure);
    }
  }
  patience_timer_.Set(core_.options.stop_patience, [this] { StopPatienceIsOver(); });
}

HostFailure HostCoordinator::Root() const {
  HostFailure failure = *first_.get();
  for (const auto& host : hosts_) failure.best_step = std::max(failure.best_step, host->best_step);
  failure.best_step = std::max(failure.best_step, core_.best_step);
  return failure;
}

void HostCoordinator::CheckDone() {
  if (phase_ == Phase::kRunning) {
    const bool all = std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->succeeded; });
    if (all) Farewell(std::nullopt);
  } else if (phase_ == Phase::kStopping) {
    const bool all = std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->ranks_gone; });
    if (all) Decide();
  }
}

void HostCoordinator::StopPatienceIsOver() {
  if (phase_ != Phase::kStopping) return;
  std::vector<Host*> late;
  for (const auto& host : hosts_) {
    if (host->link && !host->ranks_gone) late.push_back(host.get());
  }
  for (Host* host : late) {
    core_.Say(NameOf(host->entry) + " did not say within " + InSeconds(core_.options.stop_patience) +
              " that its ranks are gone; the others go on without it");
    host->link->Send(EncodeHostMessage(OverMessage{Root()}));
    Part(*host);
  }
  // Without the last of them the others may have been done.
  if (phase_ != Phase::kStopping) return;
  self().ranks_gone = true;
  Decide();
}

void HostCoordinator::Decide() {
  patience_timer_.Cancel();
  const HostFailure root = Root();
  if (first_.by_request() || !core_.events.restart) return Farewell(root);
  const std::optional<base::Duration> delay = core_.events.restart(root);
  if (!delay) return Farewell(root);
  phase_ = Phase::kBetween;
  delay_over_ = false;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(*delay).count();
  Broadcast(AgainMessage{attempt_, root, static_cast<std::uint64_t>(std::max<std::int64_t>(milliseconds, 0))});
  core_.Restarting(root, *delay);
  delay_timer_.Set(*delay, [this] {
    delay_over_ = true;
    CheckReadyAgain();
  });
}

void HostCoordinator::CheckReadyAgain() {
  if (!delay_over_) return;
  if (static_cast<int>(hosts_.size()) >= core_.options.min_hosts) {
    // From the loop, as in CheckGathered.
    return last_call_timer_.Set(base::Duration(0), [this] { StartAttempt(); });
  }
  if (delay_timer_.is_set()) return;
  core_.Say("waiting up to " + InSeconds(core_.options.last_call_timeout) +
            " for a lost host to come back: " + WhoIsMissing(Entries(), core_.options));
  delay_timer_.Set(core_.options.last_call_timeout, [this] {
    HostFailure failure = Root();
    failure.summary += "; no restart: " + base::Join(lost_, ", ") + " did not come back within " +
                       InSeconds(core_.options.last_call_timeout) + ", " + WhoIsMissing(Entries(), core_.options);
    Farewell(failure);
  });
}

void HostCoordinator::Farewell(const std::optional<HostFailure>& failure) {
  for (const auto& host : hosts_) {
    if (!host->link) continue;
    if (host->group_rank < 0) {
      host->link->Send(EncodeHostMessage(GaveUpMessage{"the run ended before this host took part in it"}));
    } else {
      host->link->Send(EncodeHostMessage(OverMessage{failure}));
    }
  }
  WhenAllKnow([this, failure] { core_.Finished(failure); });
}

void HostCoordinator::WhenAllKnow(std::function<void()> last) {
  phase_ = Phase::kEnding;
  for (LoopTimer* timer :
       {&tick_timer_, &report_timer_, &join_timer_, &last_call_timer_, &patience_timer_, &delay_timer_}) {
    timer->Cancel();
  }
  for (std::size_t i = 1; i < hosts_.size(); ++i) last_words_.Add(std::move(hosts_[i]->link), kGoodbyePatience);
  hosts_.resize(1);
  if (last_words_.size() == 0) return last();
  last_words_.WhenEmpty(std::move(last));
}

void HostCoordinator::Succeeded() {
  if (phase_ != Phase::kRunning) return;
  self().succeeded = true;
  CheckDone();
}

void HostCoordinator::Failed(const HostFailure& failure) {
  if (phase_ == Phase::kRunning || phase_ == Phase::kStopping) {
    OnFailure(self(), failure, failure.seen_at);
    return CheckDone();
  }
  if (phase_ == Phase::kEnding) return;
  HostFailure own = failure;
  own.group_rank = self().group_rank;
  own.host_name = self().entry.host_name;
  if (phase_ == Phase::kBetween) return Farewell(own);
  Broadcast(
      GaveUpMessage{NameOf(self().entry) + ", which coordinates, ended before the run began: " + failure.summary});
  WhenAllKnow([this, own] { core_.Finished(own); });
}

void HostCoordinator::Stopped() {
  if (phase_ != Phase::kStopping) return;
  self().ranks_gone = true;
  CheckDone();
}

// Links.

void HostCoordinator::OnMessage(Host& host, std::string_view text) {
  const auto message = DecodeHostMessage(text);
  if (!message) return Lose(host, LossKind::kUnintelligible, message.error().message);
  const base::TimePoint now = core_.Now();
  if (const auto* beat = std::get_if<BeatMessage>(&*message)) {
    host.pulse->HeardBeat(*beat, now);
    if (phase_ == Phase::kRunning || phase_ == Phase::kStopping)
      host.best_step = std::max(host.best_step, beat->best_step);
    return;
  }
  host.pulse->HeardSomething(now);
  if (const auto* failed = std::get_if<FailedMessage>(&*message)) return OnFailedMessage(host, *failed);
  if (const auto* stopped = std::get_if<StoppedMessage>(&*message)) {
    if (stopped->attempt == attempt_ && phase_ == Phase::kStopping) host.ranks_gone = true;
    return CheckDone();
  }
  if (const auto* succeeded = std::get_if<SucceededMessage>(&*message)) {
    if (succeeded->attempt != attempt_) return;
    host.succeeded = true;
    if (phase_ == Phase::kStopping) host.ranks_gone = true;
    return CheckDone();
  }
  Lose(host, LossKind::kUnintelligible, "a message that only a coordinator sends");
}

void HostCoordinator::OnFailedMessage(Host& host, const FailedMessage& message) {
  if (host.group_rank >= 0 && (phase_ == Phase::kRunning || phase_ == Phase::kStopping)) {
    // One of an earlier attempt is from a host that left before it heard of this one.
    const base::Duration age(static_cast<std::int64_t>(message.attempt == attempt_ ? message.age_ns : 0));
    host.best_step = std::max(host.best_step, message.failure.best_step);
    return OnFailure(host, message.failure, core_.Now() - age - host.pulse->half_round_trip());
  }
  // It leaves while nothing runs. Stopped by its user between two attempts it ends the run; else another may take its
  // place.
  HostFailure failure = message.failure;
  failure.group_rank = host.group_rank;
  failure.host_name = host.entry.host_name;
  if (phase_ == Phase::kBetween && failure.by_request) return Farewell(failure);
  core_.Say(NameOf(host.entry) + " left: " + failure.summary);
  Part(host);
}

void HostCoordinator::Lose(Host& host, LossKind kind, const std::string& detail) {
  const base::TimePoint now = core_.Now();
  const LossEnd here{self().entry.host_name, OwnAddress(), self().group_rank};
  const LossEnd there{host.entry.host_name, host.entry.address, host.group_rank};
  const base::TimePoint last_sound =
      kind == LossKind::kNotHeardThere ? host.pulse->last_echoed() : host.pulse->last_heard();
  const HostFailure failure = DescribeLoss(kind, here, there, true, now - last_sound, detail);
  const bool in_attempt = (phase_ == Phase::kRunning || phase_ == Phase::kStopping) && host.group_rank >= 0;
  if (in_attempt && host.succeeded) {
    core_.Say(NameOf(host.entry) + " is gone; its ranks had all ended well");
  } else if (in_attempt && !host.failed && !host.ranks_gone) {
    const bool of_the_link = kind == LossKind::kSilent || kind == LossKind::kNotHeardThere || kind == LossKind::kBroken;
    OnFailure(host, failure, of_the_link ? last_sound : now - core_.options.vanish_head_start);
  } else if (!in_attempt) {
    core_.Say(failure.summary);
  }
  // It may still hear: then both reports say the same. Before the first attempt it may come back.
  if (!host.link->closed() && host.group_rank >= 0) {
    host.link->Send(EncodeHostMessage(OverMessage{first_.get() ? Root() : failure}));
  }
  Part(host);
}

void HostCoordinator::Part(Host& host) {
  if (host.group_rank >= 0) lost_.push_back(NameOf(host.entry));
  departing_.Add(std::move(host.link), kGoodbyePatience);
  Remove(host);
  if (phase_ == Phase::kGathering || phase_ == Phase::kBetween) last_call_timer_.Cancel();
  if (phase_ == Phase::kGathering) CheckGathered();
  if (phase_ == Phase::kBetween) CheckReadyAgain();
  CheckDone();
}

void HostCoordinator::Remove(Host& host) {
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const auto& held) { return held.get() == &host; });
  CHECK(found != hosts_.end() && found != hosts_.begin());
  hosts_.erase(found);
}

void HostCoordinator::Tick() {
  const base::TimePoint now = core_.Now();
  const bool stalled = tick_due_ != base::TimePoint{} && stalls_.Stalled(tick_due_, now);
  tick_due_ = now + tick_;
  tick_timer_.Set(tick_, [this] { Tick(); });
  const bool beat = std::exchange(beat_with_next_tick_, !beat_with_next_tick_);
  struct Judged {
    Host* host;
    LossKind kind;
  };
  std::vector<Judged> lost;
  for (const auto& host : hosts_) {
    if (!host->link) continue;
    if (stalled) host->pulse->Forgive(now);
    if (beat) host->link->Send(EncodeHostMessage(host->pulse->NextBeat(now, core_.best_step)));
    const LinkPulse::Verdict verdict = host->pulse->Judge(now);
    if (verdict == LinkPulse::Verdict::kSilent) lost.push_back({host.get(), LossKind::kSilent});
    if (verdict == LinkPulse::Verdict::kNotHeardThere) lost.push_back({host.get(), LossKind::kNotHeardThere});
  }
  for (const Judged& judged : lost) {
    // Losing one may have ended the run, and with it the others.
    const bool still_here =
        std::any_of(hosts_.begin(), hosts_.end(), [&](const auto& host) { return host.get() == judged.host; });
    if (still_here) Lose(*judged.host, judged.kind, "");
  }
}

std::vector<RosterEntry> HostCoordinator::Entries() const {
  std::vector<RosterEntry> entries;
  entries.reserve(hosts_.size());
  for (const auto& host : hosts_) entries.push_back(host->entry);
  return entries;
}

std::string HostCoordinator::OwnAddress() const {
  if (!address_.empty()) return address_;
  for (const auto& host : hosts_) {
    if (host->link) return host->link->local_address();
  }
  return "127.0.0.1";
}

template <typename Message>
void HostCoordinator::Broadcast(const Message& message) {
  const std::string text = EncodeHostMessage(message);
  for (const auto& host : hosts_) {
    if (host->link) host->link->Send(text);
  }
}

}  // namespace fulldeck::nodes
