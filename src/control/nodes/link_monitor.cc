#include "nodes/link_monitor.h"

#include <algorithm>

namespace fulldeck::nodes {
namespace {

constexpr std::size_t kRoundTripsKept = 8;
// Many times the number that can be in flight before the link is declared lost.
constexpr std::size_t kBeatsKept = 64;

}  // namespace

LinkMonitor::LinkMonitor(base::TimePoint now, base::Duration silence_limit)
    : silence_limit_(silence_limit), last_received_(now), last_echoed_(now), beat_received_at_(now) {}

HeartbeatMessage LinkMonitor::NextHeartbeat(base::TimePoint now, std::uint64_t best_step) {
  HeartbeatMessage beat;
  beat.count = ++sent_;
  beat.echo = received_;
  beat.held_ns = static_cast<std::uint64_t>(std::max<std::int64_t>((now - beat_received_at_).count(), 0));
  beat.best_step = best_step;
  not_echoed_.push_back({sent_, now});
  if (not_echoed_.size() > kBeatsKept) not_echoed_.pop_front();
  return beat;
}

void LinkMonitor::OnHeartbeat(const HeartbeatMessage& beat, base::TimePoint now) {
  last_received_ = now;
  received_ = beat.count;
  beat_received_at_ = now;
  while (!not_echoed_.empty() && not_echoed_.front().count <= beat.echo) {
    const Sent sent = not_echoed_.front();
    not_echoed_.pop_front();
    last_echoed_ = std::max(last_echoed_, sent.when);
    if (sent.count != beat.echo) continue;
    const base::Duration round_trip = now - sent.when - base::Duration(static_cast<std::int64_t>(beat.held_ns));
    if (round_trip < base::Duration(0)) continue;
    round_trips_.push_back(round_trip);
    if (round_trips_.size() > kRoundTripsKept) round_trips_.pop_front();
    half_round_trip_ = *std::min_element(round_trips_.begin(), round_trips_.end()) / 2;
  }
}

LinkMonitor::Verdict LinkMonitor::Judge(base::TimePoint now) const {
  if (now - last_received_ > silence_limit_) return Verdict::kSilent;
  // An echo is older than the message that carries it by up to one heartbeat interval of the other side.
  if (now - last_echoed_ > silence_limit_ + interval()) return Verdict::kOneWay;
  return Verdict::kFine;
}

void LinkMonitor::DiscountStall(base::TimePoint now) {
  last_received_ = now;
  last_echoed_ = now;
}

}  // namespace fulldeck::nodes
