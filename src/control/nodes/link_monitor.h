// The heartbeats of one connection, seen from one end: whether the other end is heard, whether it hears us, and how
// long a message takes. Pure: callers pass the time in; sends nothing.
//
// Both ends notice a link that fails in one direction only: one end hears nothing, the other sees that its messages
// are no longer echoed.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "nodes/node_messages.h"

namespace fulldeck::nodes {

class LinkMonitor {
 public:
  LinkMonitor(base::TimePoint now, base::Duration silence_limit);

  // How often to send a heartbeat: eight times per silence limit.
  base::Duration interval() const { return silence_limit_ / 8; }

  HeartbeatMessage NextHeartbeat(base::TimePoint now, std::uint64_t best_step);
  void OnHeartbeat(const HeartbeatMessage& beat, base::TimePoint now);
  // Any other message counts as a heartbeat, too.
  void OnTraffic(base::TimePoint now) { last_received_ = now; }

  // Time since the other end was last heard.
  base::Duration QuietFor(base::TimePoint now) const { return now - last_received_; }
  base::TimePoint last_received() const { return last_received_; }
  // When we sent the latest message that the other end is known to have received.
  base::TimePoint last_echoed() const { return last_echoed_; }

  enum class Verdict { kFine, kSilent, kOneWay };
  Verdict Judge(base::TimePoint now) const;

  // Call this after this process itself was not running for a while: what it did not hear meanwhile proves nothing.
  void DiscountStall(base::TimePoint now);

  // Zero until it is known.
  base::Duration half_round_trip() const { return half_round_trip_; }

 private:
  struct Sent {
    std::uint64_t count;
    base::TimePoint when;
  };
  base::Duration silence_limit_;
  base::TimePoint last_received_;
  base::TimePoint last_echoed_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  base::TimePoint beat_received_at_;
  std::deque<Sent> not_echoed_;
  std::deque<base::Duration> round_trips_;
  base::Duration half_round_trip_{0};
};

// Detects that this process was suspended (stopped, swapped out, laptop asleep): a timer that fires this late says
// nothing about a peer.
class StallDetector {
 public:
  explicit StallDetector(base::Duration silence_limit) : limit_(silence_limit / 2) {}
  bool Stalled(base::TimePoint due, base::TimePoint now) const { return now - due > limit_; }

 private:
  base::Duration limit_;
};

}  // namespace fulldeck::nodes
