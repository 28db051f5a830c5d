#include "nodes/host_member.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kGoodbyePatience = 1s;

}  // namespace

HostMember::HostMember(HostGroupCore& core, std::unique_ptr<net::MessageLink> link, const JoinedMessage& joined,
                       std::function<void(const std::string& reason)> lost_before_start)
    : core_(core),
      lost_before_start_(std::move(lost_before_start)),
      link_(std::move(link)),
      coordinator_name_(joined.host_name),
      coordinator_address_(link_->remote_address()),
      own_address_(core.options.local_addr.value_or(link_->local_address())),
      pulse_(core.Now(), core.options.silence_limit),
      departing_(core.loop),
      stalls_(core.options.silence_limit),
      tick_(base::Duration(core.options.silence_limit) / 16),
      tick_timer_(core.loop),
      patience_timer_(core.loop) {
  net::MessageLink::Handlers handlers;
  handlers.message = [this](std::string_view text) { OnMessage(text); };
  handlers.ended = [this](const net::MessageLink::End& end) { OnLinkEnded(end); };
  link_->SetHandlers(std::move(handlers));
  core_.Say("joined the run of host " + coordinator_name_ + " (" + coordinator_address_ + "): " +
            std::to_string(joined.hosts) + " of " + std::to_string(core_.options.max_hosts) + " hosts are here");
  Tick();
}

// What the coordinator says.

void HostMember::OnMessage(std::string_view text) {
  const auto message = DecodeHostMessage(text);
  if (!message) return LoseCoordinator(LossKind::kUnintelligible, message.error().message);
  const base::TimePoint now = core_.Now();
  if (const auto* beat = std::get_if<BeatMessage>(&*message)) return pulse_.HeardBeat(*beat, now);
  pulse_.HeardSomething(now);
  if (const auto* waiting = std::get_if<WaitingMessage>(&*message)) return core_.Say(waiting->text);
  if (const auto* start = std::get_if<StartMessage>(&*message)) return OnStart(start->start);
  if (const auto* stop = std::get_if<StopMessage>(&*message)) return OnStop(*stop);
  if (const auto* again = std::get_if<AgainMessage>(&*message)) return OnAgain(*again);
  if (const auto* over = std::get_if<OverMessage>(&*message)) return OnOver(*over);
  if (const auto* gave_up = std::get_if<GaveUpMessage>(&*message); gave_up != nullptr && phase_ == Phase::kJoined) {
    core_.GaveUp(gave_up->reason);
    return End();
  }
  LoseCoordinator(LossKind::kUnintelligible, "a message that does not belong here");
}

void HostMember::OnStart(const AttemptStart& start) {
  if ((phase_ != Phase::kJoined && phase_ != Phase::kBetween) || start.attempt <= attempt_ || start.group_rank < 1) {
    return LoseCoordinator(LossKind::kUnintelligible, "a start that does not belong here");
  }
  AttemptStart here = start;
  if (here.master_addr.empty()) here.master_addr = coordinator_address_;
  here.members.front().address = here.master_addr;
  phase_ = Phase::kRunning;
  attempt_ = start.attempt;
  attempt_began_ = core_.Now();
  group_rank_ = start.group_rank;
  succeeded_ = false;
  ranks_gone_ = false;
  first_ = FirstFailure();
  core_.best_step = 0;
  core_.Start(here);
}

void HostMember::OnStop(const StopMessage& message) {
  if (message.attempt != attempt_) return;
  // Kept for the case that the coordinator is lost before it says the last word.
  if (phase_ == Phase::kRunning || phase_ == Phase::kStopping) first_.Add(message.failure, core_.Now());
  if (phase_ == Phase::kRunning) BeginToStop(message.failure);
}

void HostMember::OnAgain(const AgainMessage& message) {
  if (phase_ != Phase::kStopping || message.attempt != attempt_) return;
  phase_ = Phase::kBetween;
  core_.best_step = 0;
  core_.Restarting(message.failure, std::chrono::milliseconds(message.delay_ms));
}

void HostMember::OnOver(const OverMessage& message) {
  if (phase_ == Phase::kJoined) {
    core_.GaveUp(message.failure ? message.failure->summary : "the run ended before this host took part in it");
    return End();
  }
  if (!message.failure && !succeeded_) {
    return LoseCoordinator(LossKind::kUnintelligible, "that all succeeded, which this host did not");
  }
  if (!message.failure || phase_ == Phase::kBetween) {
    core_.Finished(message.failure);
    return End();
  }
  verdict_ = message.failure;
  HangUp();
  if (phase_ == Phase::kRunning) BeginToStop(*verdict_);
  EndWhenRanksAreGone();
}

void HostMember::BeginToStop(const HostFailure& failure) {
  phase_ = Phase::kStopping;
  if (succeeded_) ranks_gone_ = true;
  core_.Stop(failure);
}

// What happens here.

void HostMember::Succeeded() {
  if (phase_ != Phase::kRunning) return;
  succeeded_ = true;
  if (link_) link_->Send(EncodeHostMessage(SucceededMessage{attempt_}));
}

void HostMember::Failed(const HostFailure& failure) {
  if (phase_ == Phase::kEnded) return;
  HostFailure own = failure;
  own.group_rank = group_rank_;
  own.host_name = base::Printable(core_.options.host_name);
  const base::TimePoint now = core_.Now();
  if (link_) {
    const auto age = std::max<std::int64_t>((now - failure.seen_at).count(), 0);
    link_->Send(EncodeHostMessage(FailedMessage{attempt_, own, static_cast<std::uint64_t>(age)}));
  }
  if (phase_ == Phase::kJoined || phase_ == Phase::kBetween) {
    core_.Finished(own);
    return End();
  }
  first_.Add(own, std::clamp(failure.seen_at, attempt_began_, now));
  phase_ = Phase::kStopping;
}

void HostMember::Stopped() {
  if (phase_ != Phase::kStopping) return;
  ranks_gone_ = true;
  if (link_) link_->Send(EncodeHostMessage(StoppedMessage{attempt_}));
  CheckDone();
}

// The end.

void HostMember::OnLinkEnded(const net::MessageLink::End& end) {
  switch (end.kind) {
    case net::MessageLink::EndKind::kClosed:
      return LoseCoordinator(LossKind::kVanished, end.reason);
    case net::MessageLink::EndKind::kBroken:
      return LoseCoordinator(LossKind::kBroken, end.reason);
    case net::MessageLink::EndKind::kNotOurs:
    case net::MessageLink::EndKind::kOtherVersion:
      return LoseCoordinator(LossKind::kUnintelligible, end.reason);
  }
}

void HostMember::LoseCoordinator(LossKind kind, const std::string& detail) {
  const base::TimePoint now = core_.Now();
  const base::TimePoint last_sound = kind == LossKind::kNotHeardThere ? pulse_.last_echoed() : pulse_.last_heard();
  HostFailure failure = DescribeLoss(kind, OwnEnd(), CoordinatorEnd(), false, now - last_sound, detail);
  failure.best_step = core_.best_step;
  if (phase_ == Phase::kJoined) {
    End();
    core_.calls.Post([lost = lost_before_start_, summary = failure.summary] { lost(summary); });
    return;
  }
  const bool of_the_link = kind == LossKind::kSilent || kind == LossKind::kNotHeardThere || kind == LossKind::kBroken;
  const base::TimePoint when =
      std::clamp(of_the_link ? last_sound : now - core_.options.vanish_head_start, attempt_began_, now);
  // It may still hear: then both reports say the same.
  if (!link_->closed()) {
    link_->Send(EncodeHostMessage(FailedMessage{attempt_, failure, static_cast<std::uint64_t>((now - when).count())}));
  }
  HangUp();
  if (phase_ == Phase::kBetween) {
    core_.Finished(failure);
    return End();
  }
  first_.Add(failure, when);
  if (phase_ == Phase::kRunning) BeginToStop(*first_.get());
  EndWhenRanksAreGone();
}

void HostMember::EndWhenRanksAreGone() {
  patience_timer_.Set(core_.options.stop_patience, [this] {
    ranks_gone_ = true;
    CheckDone();
  });
  CheckDone();
}

// While the coordinator is heard, it has the last word.
void HostMember::CheckDone() {
  if (phase_ != Phase::kStopping || link_ || !ranks_gone_) return;
  core_.Finished(verdict_ ? verdict_ : first_.get());
  End();
}

void HostMember::End() {
  phase_ = Phase::kEnded;
  patience_timer_.Cancel();
  HangUp();
}

void HostMember::HangUp() {
  tick_timer_.Cancel();
  if (link_) departing_.Add(std::move(link_), kGoodbyePatience);
}

void HostMember::Tick() {
  const base::TimePoint now = core_.Now();
  if (tick_due_ != base::TimePoint{} && stalls_.Stalled(tick_due_, now)) pulse_.Forgive(now);
  tick_due_ = now + tick_;
  tick_timer_.Set(tick_, [this] { Tick(); });
  if (std::exchange(beat_with_next_tick_, !beat_with_next_tick_)) {
    link_->Send(EncodeHostMessage(pulse_.NextBeat(now, core_.best_step)));
  }
  const LinkPulse::Verdict verdict = pulse_.Judge(now);
  if (verdict == LinkPulse::Verdict::kSilent) LoseCoordinator(LossKind::kSilent, "");
  if (verdict == LinkPulse::Verdict::kNotHeardThere) LoseCoordinator(LossKind::kNotHeardThere, "");
}

LossEnd HostMember::OwnEnd() const {
  return {base::Printable(core_.options.host_name), own_address_, group_rank_};
}

LossEnd HostMember::CoordinatorEnd() const {
  return {coordinator_name_, coordinator_address_, 0};
}

}  // namespace fulldeck::nodes
