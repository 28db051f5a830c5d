#include "nodes/node_member.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kCloseTimeout = 1s;

}  // namespace

// Invariants:
// - While link_ is set, the coordinator decides: CheckDone does nothing. After HangUp this node ends by itself when
//   its ranks are gone, or at stop_timeout.
// - HangUp cancels the tick and gives the link other handlers, so OnMessage, OnCoordinatorLost and Tick run only
//   while link_ is set.
// - End leaves no timer and no link, so nothing follows the final callback.

NodeMember::NodeMember(NodeGroupContext& context, std::unique_ptr<net::MessageLink> link, const JoinedMessage& joined,
                       std::function<void(const std::string& reason)> lost_before_start)
    : context_(context),
      lost_before_start_(std::move(lost_before_start)),
      link_(std::move(link)),
      coordinator_name_(joined.host_name),
      coordinator_address_(link_->remote_address()),
      self_address_(context.options.local_addr.value_or(link_->local_address())),
      monitor_(context.Now(), context.options.silence_limit),
      closing_(context.loop),
      stall_detector_(context.options.silence_limit),
      tick_(base::Duration(context.options.silence_limit) / 16),
      tick_timer_(context.loop),
      stop_timer_(context.loop) {
  net::MessageLink::Handlers handlers;
  handlers.message = [this](std::string_view text) { OnMessage(text); };
  handlers.ended = [this](const net::MessageLink::End& end) { OnLinkEnded(end); };
  link_->SetHandlers(std::move(handlers));
  context_.LogLine("joined the run of host " + coordinator_name_ + " (" + coordinator_address_ +
                   "): " + std::to_string(joined.nodes) + " of " + std::to_string(context_.options.max_nodes) +
                   " hosts are here");
  Tick();
}

// Messages of the coordinator.

void NodeMember::OnMessage(std::string_view text) {
  const auto message = DecodeNodeMessage(text);
  if (!message) return OnCoordinatorLost(LossKind::kUnintelligible, message.error().message);
  const base::TimePoint now = context_.Now();
  if (const auto* beat = std::get_if<HeartbeatMessage>(&*message)) return monitor_.OnHeartbeat(*beat, now);
  monitor_.OnTraffic(now);
  if (const auto* waiting = std::get_if<WaitingMessage>(&*message)) return context_.LogLine(waiting->text);
  if (const auto* start = std::get_if<StartMessage>(&*message)) return OnStart(start->start);
  if (const auto* stop = std::get_if<StopMessage>(&*message)) return OnStop(*stop);
  if (const auto* again = std::get_if<RestartMessage>(&*message)) return OnRestart(*again);
  if (const auto* over = std::get_if<FinishedMessage>(&*message)) return OnFinished(*over);
  if (const auto* gave_up = std::get_if<GaveUpMessage>(&*message); gave_up != nullptr && phase_ == Phase::kJoined) {
    context_.GaveUp(gave_up->reason);
    return End();
  }
  OnCoordinatorLost(LossKind::kUnintelligible, "a message that does not belong here");
}

void NodeMember::OnStart(const AttemptStart& start) {
  if ((phase_ != Phase::kJoined && phase_ != Phase::kBetween) || start.attempt <= attempt_ || start.group_rank < 1) {
    return OnCoordinatorLost(LossKind::kUnintelligible, "a start that does not belong here");
  }
  AttemptStart here = start;
  if (here.master_addr.empty()) here.master_addr = coordinator_address_;
  here.members.front().address = here.master_addr;
  phase_ = Phase::kRunning;
  attempt_ = start.attempt;
  attempt_began_ = context_.Now();
  group_rank_ = start.group_rank;
  succeeded_ = false;
  ranks_gone_ = false;
  first_ = FirstFailure();
  context_.best_step = 0;
  context_.Start(here);
}

void NodeMember::OnStop(const StopMessage& message) {
  if (message.attempt != attempt_) return;
  // Kept in case the coordinator is lost before it sends its final message.
  if (phase_ == Phase::kRunning || phase_ == Phase::kStopping) first_.Add(message.failure, context_.Now());
  if (phase_ == Phase::kRunning) BeginToStop(message.failure);
}

void NodeMember::OnRestart(const RestartMessage& message) {
  if (phase_ != Phase::kStopping || message.attempt != attempt_) return;
  phase_ = Phase::kBetween;
  context_.best_step = 0;
  context_.Restarting(message.failure, std::chrono::milliseconds(message.delay_ms));
}

void NodeMember::OnFinished(const FinishedMessage& message) {
  if (phase_ == Phase::kJoined) {
    context_.GaveUp(message.failure ? message.failure->summary : "the run ended before this host took part in it");
    return End();
  }
  if (!message.failure && !succeeded_) {
    return OnCoordinatorLost(LossKind::kUnintelligible, "that all succeeded, which this host did not");
  }
  if (!message.failure || phase_ == Phase::kBetween) {
    context_.Finished(message.failure);
    return End();
  }
  verdict_ = message.failure;
  HangUp();
  if (phase_ == Phase::kRunning) BeginToStop(*verdict_);
  EndWhenRanksAreGone();
}

void NodeMember::BeginToStop(const NodeFailure& failure) {
  phase_ = Phase::kStopping;
  if (succeeded_) ranks_gone_ = true;
  context_.Stop(failure);
}

// Calls of the owner.

void NodeMember::Succeeded() {
  if (phase_ != Phase::kRunning) return;
  succeeded_ = true;
  if (link_) link_->Send(EncodeNodeMessage(SucceededMessage{attempt_}));
}

void NodeMember::Failed(const NodeFailure& failure) {
  if (phase_ == Phase::kEnded) return;
  NodeFailure own = failure;
  own.group_rank = group_rank_;
  own.host_name = base::Printable(context_.options.host_name);
  const base::TimePoint now = context_.Now();
  if (link_) {
    const auto age = std::max<std::int64_t>((now - failure.seen_at).count(), 0);
    link_->Send(EncodeNodeMessage(FailedMessage{attempt_, own, static_cast<std::uint64_t>(age)}));
  }
  if (phase_ == Phase::kJoined || phase_ == Phase::kBetween) {
    context_.Finished(own);
    return End();
  }
  first_.Add(own, std::clamp(failure.seen_at, attempt_began_, now));
  phase_ = Phase::kStopping;
}

void NodeMember::Stopped() {
  if (phase_ != Phase::kStopping) return;
  ranks_gone_ = true;
  if (link_) link_->Send(EncodeNodeMessage(StoppedMessage{attempt_}));
  CheckDone();
}

// The end of the run on this node.

void NodeMember::OnLinkEnded(const net::MessageLink::End& end) {
  switch (end.kind) {
    case net::MessageLink::EndKind::kClosed:
      return OnCoordinatorLost(LossKind::kVanished, end.reason);
    case net::MessageLink::EndKind::kBroken:
      return OnCoordinatorLost(LossKind::kBroken, end.reason);
    case net::MessageLink::EndKind::kNotOurs:
    case net::MessageLink::EndKind::kOtherVersion:
      return OnCoordinatorLost(LossKind::kUnintelligible, end.reason);
  }
}

void NodeMember::OnCoordinatorLost(LossKind kind, const std::string& detail) {
  const base::TimePoint now = context_.Now();
  const base::TimePoint last_contact = kind == LossKind::kOneWay ? monitor_.last_echoed() : monitor_.last_received();
  NodeFailure failure = DescribeLoss(kind, SelfEnd(), CoordinatorEnd(), false, now - last_contact, detail);
  failure.best_step = context_.best_step;
  if (phase_ == Phase::kJoined) {
    End();
    context_.calls.Post([lost = lost_before_start_, summary = failure.summary] { lost(summary); });
    return;
  }
  const bool of_the_link = kind == LossKind::kSilent || kind == LossKind::kOneWay || kind == LossKind::kBroken;
  const base::TimePoint when =
      std::clamp(of_the_link ? last_contact : now - context_.options.vanish_head_start, attempt_began_, now);
  // The coordinator may still receive this; then both reports are the same.
  if (!link_->closed()) {
    link_->Send(EncodeNodeMessage(FailedMessage{attempt_, failure, static_cast<std::uint64_t>((now - when).count())}));
  }
  HangUp();
  if (phase_ == Phase::kBetween) {
    context_.Finished(failure);
    return End();
  }
  first_.Add(failure, when);
  if (phase_ == Phase::kRunning) BeginToStop(*first_.get());
  EndWhenRanksAreGone();
}

void NodeMember::EndWhenRanksAreGone() {
  stop_timer_.Set(context_.options.stop_timeout, [this] {
    ranks_gone_ = true;
    CheckDone();
  });
  CheckDone();
}

// While the link to the coordinator works, the coordinator decides.
void NodeMember::CheckDone() {
  if (phase_ != Phase::kStopping || link_ || !ranks_gone_) return;
  context_.Finished(verdict_ ? verdict_ : first_.get());
  End();
}

void NodeMember::End() {
  phase_ = Phase::kEnded;
  stop_timer_.Cancel();
  HangUp();
}

void NodeMember::HangUp() {
  tick_timer_.Cancel();
  if (link_) closing_.Add(std::move(link_), kCloseTimeout);
}

void NodeMember::Tick() {
  const base::TimePoint now = context_.Now();
  if (tick_due_ != base::TimePoint{} && stall_detector_.Stalled(tick_due_, now)) monitor_.DiscountStall(now);
  tick_due_ = now + tick_;
  tick_timer_.Set(tick_, [this] { Tick(); });
  if (std::exchange(beat_with_next_tick_, !beat_with_next_tick_)) {
    link_->Send(EncodeNodeMessage(monitor_.NextHeartbeat(now, context_.best_step)));
  }
  const LinkMonitor::Verdict verdict = monitor_.Judge(now);
  if (verdict == LinkMonitor::Verdict::kSilent) OnCoordinatorLost(LossKind::kSilent, "");
  if (verdict == LinkMonitor::Verdict::kOneWay) OnCoordinatorLost(LossKind::kOneWay, "");
}

LossEnd NodeMember::SelfEnd() const {
  return {base::Printable(context_.options.host_name), self_address_, group_rank_};
}

LossEnd NodeMember::CoordinatorEnd() const {
  return {coordinator_name_, coordinator_address_, 0};
}

}  // namespace fulldeck::nodes
