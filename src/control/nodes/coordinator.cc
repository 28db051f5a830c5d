#include "nodes/coordinator.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;

// For a final message to arrive. Only a link that is failing takes the whole time.
constexpr base::Duration kCloseTimeout = 1s;

}  // namespace

// Invariants:
// - nodes_.front() is this node. It has no link and is never removed. Its group rank is 0 in every attempt.
// - Every other Node has a link until Disconnect or CloseLinks removes both. The handlers of a link refer to its
//   Node, and a link that outlives the Node (closing_, final_links_) has other handlers.
// - phase_ is kRunning or kStopping exactly while an attempt is active. Root() is called only in kStopping and
//   kBetween, where first_ is set.
// - An attempt starts only from a timer of the loop (last_call_timer_), never inside a link handler or the
//   constructor.
// - After CloseLinks only this node remains and all timers are off, so nothing follows the final callback.

Coordinator::Coordinator(NodeGroupContext& context, base::UniqueFd listener, std::string address)
    : context_(context),
      address_(std::move(address)),
      closing_(context.loop),
      final_links_(context.loop),
      begun_(context.Now()),
      stall_detector_(context.options.silence_limit),
      tick_(base::Duration(context.options.silence_limit) / 16),
      tick_timer_(context.loop),
      report_timer_(context.loop),
      join_timer_(context.loop),
      last_call_timer_(context.loop),
      stop_timer_(context.loop),
      delay_timer_(context.loop) {
  auto here = std::make_unique<Node>();
  here->entry = {base::Printable(context_.options.host_name), address_.empty() ? "all interfaces" : address_,
                 context_.options.node_rank, context_.options.local_ranks};
  nodes_.push_back(std::move(here));
  acceptor_ = std::make_unique<NodeAcceptor>(
      context_, std::move(listener),
      [this](std::unique_ptr<net::MessageLink> link, const JoinMessage& join) { OnArrival(std::move(link), join); });
  join_timer_.Set(context_.options.join_timeout, [this] {
    GiveUp("the hosts did not come together within " + base::FormatTimeout(context_.options.join_timeout) + ": " +
           DescribeMissingNodes(Entries(), context_.options));
  });
  report_timer_.Set(context_.options.report_interval, [this] { ReportMissingNodes(); });
  Tick();
  CheckRendezvous();
}

Coordinator::~Coordinator() = default;

// Rendezvous.

void Coordinator::OnArrival(std::unique_ptr<net::MessageLink> link, const JoinMessage& join) {
  const std::string address = join.address.value_or(link->remote_address());
  // A restarted launcher arrives before its dead predecessor has timed out.
  if (const auto older = FindNodeRank(Entries(), join.node_rank); older && *older != 0 && phase_ != Phase::kRunning) {
    Node& node = *nodes_[*older];
    if (node.monitor->QuietFor(context_.Now()) > 3 * node.monitor->interval()) OnPeerLost(node, LossKind::kSilent, "");
  }
  std::optional<std::string> reason;
  if (phase_ == Phase::kClosing) {
    reason = "the run is over";
  } else if (phase_ == Phase::kRunning) {
    reason = "the run has begun with " + base::Counted(static_cast<int>(nodes_.size()), "host");
  } else {
    reason = WhyNotJoin(Entries(), context_.options, join, address);
  }
  if (reason) {
    context_.LogLine("turned away host " + join.host_name + " (" + address + "): " + *reason);
    if (acceptor_) acceptor_->Reject(std::move(link), *reason);
    return;
  }
  auto node = std::make_unique<Node>();
  node->entry = {join.host_name, address, join.node_rank, join.ranks};
  node->link = std::move(link);
  node->monitor.emplace(context_.Now(), context_.options.silence_limit);
  Node* const who = node.get();
  net::MessageLink::Handlers handlers;
  handlers.message = [this, who](std::string_view text) { OnMessage(*who, text); };
  handlers.ended = [this, who](const net::MessageLink::End& end) {
    switch (end.kind) {
      case net::MessageLink::EndKind::kClosed:
        return OnPeerLost(*who, LossKind::kVanished, end.reason);
      case net::MessageLink::EndKind::kBroken:
        return OnPeerLost(*who, LossKind::kBroken, end.reason);
      case net::MessageLink::EndKind::kNotOurs:
      case net::MessageLink::EndKind::kOtherVersion:
        return OnPeerLost(*who, LossKind::kUnintelligible, end.reason);
    }
  };
  node->link->SetHandlers(std::move(handlers));
  nodes_.push_back(std::move(node));
  std::erase(lost_, NameOf(who->entry));
  self().entry.address = SelfAddress();
  const int nodes = static_cast<int>(nodes_.size());
  who->link->Send(EncodeNodeMessage(JoinedMessage{self().entry.host_name, nodes}));
  context_.LogLine(NameOf(who->entry) + " joined with " + base::Counted(join.ranks, "rank") + ": " +
                   std::to_string(nodes) + " of " + NodeRange(context_.options.min_nodes, context_.options.max_nodes) +
                   " hosts");
  last_call_timer_.Cancel();
  if (phase_ == Phase::kRendezvous) CheckRendezvous();
  if (phase_ == Phase::kBetween) CheckReadyAgain();
}

void Coordinator::CheckRendezvous() {
  const int nodes = static_cast<int>(nodes_.size());
  if (nodes < context_.options.min_nodes) return last_call_timer_.Cancel();
  // Start from the loop. The caller may be the constructor, or a handler of a link, which a start must not re-enter.
  const base::Duration wait =
      nodes == context_.options.max_nodes ? base::Duration(0) : base::Duration(context_.options.last_call_timeout);
  if (nodes == context_.options.max_nodes || !last_call_timer_.is_set()) {
    last_call_timer_.Set(wait, [this] { StartAttempt(); });
  }
}

void Coordinator::ReportMissingNodes() {
  report_timer_.Set(context_.options.report_interval, [this] { ReportMissingNodes(); });
  const std::string text =
      "after " + base::FormatTimeout(context_.Now() - begun_) + " " + DescribeMissingNodes(Entries(), context_.options);
  context_.LogLine(text);
  Broadcast(WaitingMessage{text});
}

void Coordinator::GiveUp(const std::string& reason) {
  std::string text = reason;
  if (nodes_.size() == 1 && (address_.starts_with("127.") || address_ == "::1")) {
    text += ". The meeting point " + address_ + " is this host only: no other one can reach it";
  }
  Broadcast(GaveUpMessage{text});
  CloseLinks([this, text] { context_.GaveUp(text); });
}

void Coordinator::StartAttempt() {
  report_timer_.Cancel();
  join_timer_.Cancel();
  last_call_timer_.Cancel();
  delay_timer_.Cancel();
  FULLDECK_CHECK(context_.events.take_master_port);
  const auto port = context_.events.take_master_port();
  if (!port) {
    const std::string reason = "no port for the ranks on " + NameOf(self().entry) + ": " + port.error().message;
    if (attempt_ < 0) return GiveUp(reason);
    NodeFailure failure = Root();
    failure.summary += "; no restart: " + reason;
    return SendFinal(failure);
  }
  AttemptStart start;
  start.attempt = ++attempt_;
  start.master_port = *port;
  const auto entries = Entries();
  const auto order = NodeOrder(entries);
  start.group_world_size = static_cast<int>(order.size());
  start.world_size = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const RosterEntry& entry = entries[order[rank]];
    nodes_[order[rank]]->group_rank = static_cast<int>(rank);
    start.members.push_back({entry.host_name, entry.address, start.world_size, entry.ranks});
    start.world_size += entry.ranks;
  }
  FULLDECK_CHECK(self().group_rank == 0);
  attempt_began_ = context_.Now();
  first_ = FirstFailure();
  lost_.clear();
  phase_ = Phase::kRunning;
  for (const auto& node : nodes_) {
    node->succeeded = node->ranks_gone = node->failed = false;
    node->best_step = 0;
    start.group_rank = node->group_rank;
    start.first_rank = start.members[static_cast<std::size_t>(node->group_rank)].first_rank;
    // A member uses the address by which it reached this node, unless the user specified one.
    start.master_addr = !node->link ? SelfAddress() : context_.options.local_addr ? address_ : "";
    if (node->link) {
      node->link->Send(EncodeNodeMessage(StartMessage{start}));
    } else {
      start.members.front().address = start.master_addr;
      context_.Start(start);
    }
  }
  context_.best_step = 0;
}

base::TimePoint Coordinator::WithinAttempt(base::TimePoint when) const {
  return std::clamp(when, attempt_began_, context_.Now());
}

void Coordinator::OnFailure(Node& node, NodeFailure failure, base::TimePoint when) {
  failure.group_rank = node.group_rank;
  failure.host_name = node.entry.host_name;
  node.failed = true;
  first_.Add(failure, WithinAttempt(when));
  if (phase_ == Phase::kRunning) BeginToStop();
}

void Coordinator::BeginToStop() {
  phase_ = Phase::kStopping;
  const NodeFailure failure = Root();
  for (const auto& node : nodes_) {
    if (node->succeeded) node->ranks_gone = true;
    if (node->failed) continue;
    if (node->link) {
      node->link->Send(EncodeNodeMessage(StopMessage{attempt_, failure}));
    } else {
      context_.Stop(failure);
    }
  }
  stop_timer_.Set(context_.options.stop_timeout, [this] { OnStopTimeout(); });
}

NodeFailure Coordinator::Root() const {
  NodeFailure failure = *first_.get();
  for (const auto& node : nodes_) failure.best_step = std::max(failure.best_step, node->best_step);
  failure.best_step = std::max(failure.best_step, context_.best_step);
  return failure;
}

void Coordinator::CheckDone() {
  if (phase_ == Phase::kRunning) {
    const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->succeeded; });
    if (all) SendFinal(std::nullopt);
  } else if (phase_ == Phase::kStopping) {
    const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->ranks_gone; });
    if (all) Decide();
  }
}

void Coordinator::OnStopTimeout() {
  if (phase_ != Phase::kStopping) return;
  std::vector<Node*> late;
  for (const auto& node : nodes_) {
    if (node->link && !node->ranks_gone) late.push_back(node.get());
  }
  for (Node* node : late) {
    context_.LogLine(NameOf(node->entry) + " did not say within " + base::FormatTimeout(context_.options.stop_timeout) +
                     " that its ranks are gone; the others go on without it");
    node->link->Send(EncodeNodeMessage(FinishedMessage{Root()}));
    Disconnect(*node);
  }
  // Disconnecting the last one may already have completed the stop.
  if (phase_ != Phase::kStopping) return;
  self().ranks_gone = true;
  Decide();
}

void Coordinator::Decide() {
  stop_timer_.Cancel();
  const NodeFailure root = Root();
  if (first_.by_request() || !context_.events.restart) return SendFinal(root);
  const std::optional<base::Duration> delay = context_.events.restart(root);
  if (!delay) return SendFinal(root);
  phase_ = Phase::kBetween;
  delay_over_ = false;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(*delay).count();
  Broadcast(RestartMessage{attempt_, root, static_cast<std::uint64_t>(std::max<std::int64_t>(milliseconds, 0))});
  context_.Restarting(root, *delay);
  delay_timer_.Set(*delay, [this] {
    delay_over_ = true;
    CheckReadyAgain();
  });
}

void Coordinator::CheckReadyAgain() {
  if (!delay_over_) return;
  if (static_cast<int>(nodes_.size()) >= context_.options.min_nodes) {
    // From the loop, as in CheckRendezvous.
    return last_call_timer_.Set(base::Duration(0), [this] { StartAttempt(); });
  }
  if (delay_timer_.is_set()) return;
  context_.LogLine("waiting up to " + base::FormatTimeout(context_.options.last_call_timeout) +
                   " for a lost host to come back: " + DescribeMissingNodes(Entries(), context_.options));
  delay_timer_.Set(context_.options.last_call_timeout, [this] {
    NodeFailure failure = Root();
    failure.summary += "; no restart: " + base::Join(lost_, ", ") + " did not come back within " +
                       base::FormatTimeout(context_.options.last_call_timeout) + ", " +
                       DescribeMissingNodes(Entries(), context_.options);
    SendFinal(failure);
  });
}

void Coordinator::SendFinal(const std::optional<NodeFailure>& failure) {
  for (const auto& node : nodes_) {
    if (!node->link) continue;
    if (node->group_rank < 0) {
      node->link->Send(EncodeNodeMessage(GaveUpMessage{"the run ended before this host took part in it"}));
    } else {
      node->link->Send(EncodeNodeMessage(FinishedMessage{failure}));
    }
  }
  CloseLinks([this, failure] { context_.Finished(failure); });
}

void Coordinator::CloseLinks(std::function<void()> last) {
  phase_ = Phase::kClosing;
  for (base::LoopTimer* timer :
       {&tick_timer_, &report_timer_, &join_timer_, &last_call_timer_, &stop_timer_, &delay_timer_}) {
    timer->Cancel();
  }
  for (std::size_t i = 1; i < nodes_.size(); ++i) final_links_.Add(std::move(nodes_[i]->link), kCloseTimeout);
  nodes_.resize(1);
  if (final_links_.size() == 0) return last();
  final_links_.WhenEmpty(std::move(last));
}

void Coordinator::Succeeded() {
  if (phase_ != Phase::kRunning) return;
  self().succeeded = true;
  CheckDone();
}

void Coordinator::Failed(const NodeFailure& failure) {
  if (phase_ == Phase::kRunning || phase_ == Phase::kStopping) {
    OnFailure(self(), failure, failure.seen_at);
    return CheckDone();
  }
  if (phase_ == Phase::kClosing) return;
  NodeFailure own = failure;
  own.group_rank = self().group_rank;
  own.host_name = self().entry.host_name;
  if (phase_ == Phase::kBetween) return SendFinal(own);
  Broadcast(
      GaveUpMessage{NameOf(self().entry) + ", which coordinates, ended before the run began: " + failure.summary});
  CloseLinks([this, own] { context_.Finished(own); });
}

void Coordinator::Stopped() {
  if (phase_ != Phase::kStopping) return;
  self().ranks_gone = true;
  CheckDone();
}

void Coordinator::OnMessage(Node& node, std::string_view text) {
  const auto message = DecodeNodeMessage(text);
  if (!message) return OnPeerLost(node, LossKind::kUnintelligible, message.error().message);
  const base::TimePoint now = context_.Now();
  if (const auto* beat = std::get_if<HeartbeatMessage>(&*message)) {
    node.monitor->OnHeartbeat(*beat, now);
    if (phase_ == Phase::kRunning || phase_ == Phase::kStopping)
      node.best_step = std::max(node.best_step, beat->best_step);
    return;
  }
  node.monitor->OnTraffic(now);
  if (const auto* failed = std::get_if<FailedMessage>(&*message)) return OnFailedMessage(node, *failed);
  if (const auto* stopped = std::get_if<StoppedMessage>(&*message)) {
    if (stopped->attempt == attempt_ && phase_ == Phase::kStopping) node.ranks_gone = true;
    return CheckDone();
  }
  if (const auto* succeeded = std::get_if<SucceededMessage>(&*message)) {
    if (succeeded->attempt != attempt_) return;
    node.succeeded = true;
    if (phase_ == Phase::kStopping) node.ranks_gone = true;
    return CheckDone();
  }
  OnPeerLost(node, LossKind::kUnintelligible, "a message that only a coordinator sends");
}

void Coordinator::OnFailedMessage(Node& node, const FailedMessage& message) {
  if (node.group_rank >= 0 && (phase_ == Phase::kRunning || phase_ == Phase::kStopping)) {
    // A message with an earlier attempt is from a node that left before it received this attempt's start.
    const base::Duration age(static_cast<std::int64_t>(message.attempt == attempt_ ? message.age_ns : 0));
    node.best_step = std::max(node.best_step, message.failure.best_step);
    return OnFailure(node, message.failure, context_.Now() - age - node.monitor->half_round_trip());
  }
  // The node leaves between attempts. If its user stopped it between two attempts, the run ends; otherwise another
  // node may take its place.
  NodeFailure failure = message.failure;
  failure.group_rank = node.group_rank;
  failure.host_name = node.entry.host_name;
  if (phase_ == Phase::kBetween && failure.by_request) return SendFinal(failure);
  context_.LogLine(NameOf(node.entry) + " left: " + failure.summary);
  Disconnect(node);
}

void Coordinator::OnPeerLost(Node& node, LossKind kind, const std::string& detail) {
  const base::TimePoint now = context_.Now();
  const LossEnd here{self().entry.host_name, SelfAddress(), self().group_rank};
  const LossEnd there{node.entry.host_name, node.entry.address, node.group_rank};
  const base::TimePoint last_contact =
      kind == LossKind::kOneWay ? node.monitor->last_echoed() : node.monitor->last_received();
  const NodeFailure failure = DescribeLoss(kind, here, there, true, now - last_contact, detail);
  const bool in_attempt = (phase_ == Phase::kRunning || phase_ == Phase::kStopping) && node.group_rank >= 0;
  if (in_attempt && node.succeeded) {
    context_.LogLine(NameOf(node.entry) + " is gone; its ranks had all ended well");
  } else if (in_attempt && !node.failed && !node.ranks_gone) {
    const bool of_the_link = kind == LossKind::kSilent || kind == LossKind::kOneWay || kind == LossKind::kBroken;
    OnFailure(node, failure, of_the_link ? last_contact : now - context_.options.vanish_head_start);
  } else if (!in_attempt) {
    context_.LogLine(failure.summary);
  }
  // The peer may still receive this; then both reports are the same. Before the first attempt nothing is sent,
  // because the peer may come back.
  if (!node.link->closed() && node.group_rank >= 0) {
    node.link->Send(EncodeNodeMessage(FinishedMessage{first_.get() ? Root() : failure}));
  }
  Disconnect(node);
}

void Coordinator::Disconnect(Node& node) {
  if (node.group_rank >= 0) lost_.push_back(NameOf(node.entry));
  closing_.Add(std::move(node.link), kCloseTimeout);
  Remove(node);
  if (phase_ == Phase::kRendezvous || phase_ == Phase::kBetween) last_call_timer_.Cancel();
  if (phase_ == Phase::kRendezvous) CheckRendezvous();
  if (phase_ == Phase::kBetween) CheckReadyAgain();
  CheckDone();
}

void Coordinator::Remove(Node& node) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& held) { return held.get() == &node; });
  FULLDECK_CHECK(found != nodes_.end() && found != nodes_.begin());
  nodes_.erase(found);
}

void Coordinator::Tick() {
  const base::TimePoint now = context_.Now();
  const bool stalled = tick_due_ != base::TimePoint{} && stall_detector_.Stalled(tick_due_, now);
  tick_due_ = now + tick_;
  tick_timer_.Set(tick_, [this] { Tick(); });
  const bool beat = std::exchange(beat_with_next_tick_, !beat_with_next_tick_);
  struct Judged {
    Node* node;
    LossKind kind;
  };
  std::vector<Judged> lost;
  for (const auto& node : nodes_) {
    if (!node->link) continue;
    if (stalled) node->monitor->DiscountStall(now);
    if (beat) node->link->Send(EncodeNodeMessage(node->monitor->NextHeartbeat(now, context_.best_step)));
    const LinkMonitor::Verdict verdict = node->monitor->Judge(now);
    if (verdict == LinkMonitor::Verdict::kSilent) lost.push_back({node.get(), LossKind::kSilent});
    if (verdict == LinkMonitor::Verdict::kOneWay) lost.push_back({node.get(), LossKind::kOneWay});
  }
  for (const Judged& judged : lost) {
    // The loss of one node may have ended the run and removed the others.
    const bool still_here =
        std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) { return node.get() == judged.node; });
    if (still_here) OnPeerLost(*judged.node, judged.kind, "");
  }
}

std::vector<RosterEntry> Coordinator::Entries() const {
  std::vector<RosterEntry> entries;
  entries.reserve(nodes_.size());
  for (const auto& node : nodes_) entries.push_back(node->entry);
  return entries;
}

std::string Coordinator::SelfAddress() const {
  if (!address_.empty()) return address_;
  for (const auto& node : nodes_) {
    if (node->link) return node->link->local_address();
  }
  return "127.0.0.1";
}

template <typename Message>
void Coordinator::Broadcast(const Message& message) {
  const std::string text = EncodeNodeMessage(message);
  for (const auto& node : nodes_) {
    if (node->link) node->link->Send(text);
  }
}

}  // namespace fulldeck::nodes
