#include "nodes/link_monitor.h"

#include <gtest/gtest.h>

#include <random>

namespace fulldeck::nodes {
namespace {

using namespace std::chrono_literals;
using Verdict = LinkMonitor::Verdict;

constexpr base::TimePoint kStart{1h};

// Two ends that send heartbeats in turn over a link with a delay, or with one direction cut.
struct Pair {
  explicit Pair(base::Duration limit) : a(kStart, limit), b(kStart, limit) {}

  // One interval later, both send a heartbeat.
  void Step(bool a_to_b = true, bool b_to_a = true) {
    now += a.interval();
    const HeartbeatMessage from_a = a.NextHeartbeat(now, 0);
    const HeartbeatMessage from_b = b.NextHeartbeat(now, 0);
    if (a_to_b) b.OnHeartbeat(from_a, now + delay);
    if (b_to_a) a.OnHeartbeat(from_b, now + delay);
  }

  LinkMonitor a, b;
  base::Duration delay{10ms};
  base::TimePoint now = kStart;
};

TEST(LinkMonitor, IsFineWhileBothReceive) {
  Pair pair(4s);
  EXPECT_EQ(pair.a.interval(), 500ms);
  for (int i = 0; i < 100; ++i) {
    pair.Step();
    EXPECT_EQ(pair.a.Judge(pair.now), Verdict::kFine);
    EXPECT_EQ(pair.b.Judge(pair.now), Verdict::kFine);
  }
}

TEST(LinkMonitor, NoticesSilenceWithinTheLimit) {
  Pair pair(4s);
  for (int i = 0; i < 10; ++i) pair.Step();
  const base::TimePoint cut = pair.now;
  EXPECT_EQ(pair.a.Judge(cut + 4s), Verdict::kFine);
  EXPECT_EQ(pair.a.Judge(cut + 4s + 20ms), Verdict::kSilent);
}

TEST(LinkMonitor, ALinkThatIsCutInOneDirectionIsNoticedAtBothEndsInFiveSeconds) {
  Pair pair(4s);
  for (int i = 0; i < 10; ++i) pair.Step();
  const base::TimePoint cut = pair.now;
  while (pair.now < cut + 4s) {
    pair.Step(/*a_to_b=*/false);
    EXPECT_NE(pair.a.Judge(pair.now), Verdict::kSilent) << "it still hears b";
  }
  EXPECT_EQ(pair.b.Judge(cut + 4250ms), Verdict::kSilent);
  EXPECT_EQ(pair.a.Judge(cut + 4750ms), Verdict::kOneWay);
  EXPECT_LE(pair.a.last_echoed(), cut);
}

TEST(LinkMonitor, LosingOneHeartbeatInFiveAndDelaysAreNoAlarm) {
  Pair pair(4s);
  std::mt19937 random(5);
  std::uniform_int_distribution<int> percent(0, 99);
  for (int i = 0; i < 20'000; ++i) {
    pair.delay = std::chrono::milliseconds(percent(random) * 4);
    pair.Step(percent(random) >= 5, percent(random) >= 5);
    ASSERT_EQ(pair.a.Judge(pair.now + pair.delay), Verdict::kFine) << i;
    ASSERT_EQ(pair.b.Judge(pair.now + pair.delay), Verdict::kFine) << i;
  }
}

TEST(LinkMonitor, DiscountsSilenceWhileThisProcessWasStalled) {
  LinkMonitor monitor(kStart, 4s);
  EXPECT_EQ(monitor.Judge(kStart + 60s), Verdict::kSilent);
  monitor.DiscountStall(kStart + 60s);
  EXPECT_EQ(monitor.Judge(kStart + 60s), Verdict::kFine);
  EXPECT_EQ(monitor.Judge(kStart + 64s + 1ms), Verdict::kSilent) << "but a dead one is still found";
  const StallDetector stalls(4s);
  EXPECT_FALSE(stalls.Stalled(kStart, kStart + 2s));
  EXPECT_TRUE(stalls.Stalled(kStart, kStart + 2s + 1ms));
}

TEST(LinkMonitor, MeasuresHalfARoundTripWithoutTheTimeThatTheHeartbeatWasHeld) {
  LinkMonitor here(kStart, 4s);
  LinkMonitor there(kStart, 4s);
  EXPECT_EQ(here.half_round_trip(), 0ns);
  const HeartbeatMessage beat = here.NextHeartbeat(kStart, 0);
  there.OnHeartbeat(beat, kStart + 30ms);
  here.OnHeartbeat(there.NextHeartbeat(kStart + 400ms, 0), kStart + 450ms);  // held for 370 ms, 80 ms in transit
  EXPECT_EQ(here.half_round_trip(), 40ms);
}

TEST(LinkMonitor, IsNotConfusedByImpossibleHeartbeats) {
  LinkMonitor monitor(kStart, 4s);
  monitor.NextHeartbeat(kStart, 0);
  monitor.OnHeartbeat({5, 99, std::uint64_t{1} << 62, 0}, kStart + 1s);
  monitor.NextHeartbeat(kStart + 1s, 0);
  monitor.OnHeartbeat({5, 2, std::uint64_t{1} << 62, 0}, kStart + 2s);
  EXPECT_EQ(monitor.half_round_trip(), 0ns);
  EXPECT_EQ(monitor.Judge(kStart + 2s), Verdict::kFine);
  // Heartbeats that are never echoed keep the list bounded.
  for (int i = 0; i < 10'000; ++i) monitor.NextHeartbeat(kStart + 3s, 0);
  EXPECT_EQ(monitor.Judge(kStart + 10s), Verdict::kSilent);
}

}  // namespace
}  // namespace fulldeck::nodes
