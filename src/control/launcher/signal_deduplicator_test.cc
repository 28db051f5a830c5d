#include "launcher/signal_deduplicator.h"

#include <gtest/gtest.h>

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const base::TimePoint kStart{};

TEST(SignalDeduplicator, ASignalToTheProxyAloneIsForwarded) {
  SignalDeduplicator deduplicator;
  EXPECT_FALSE(deduplicator.CameFromProxy(kStart));
  deduplicator.Forwarded();
  EXPECT_FALSE(deduplicator.CameFromProxy(kStart + seconds(1)));
}

TEST(SignalDeduplicator, ASignalToEveryProcessIsNotForwardedWhicheverCopyComesFirst) {
  SignalDeduplicator deduplicator;
  EXPECT_FALSE(deduplicator.CameDirectly(kStart));
  EXPECT_TRUE(deduplicator.CameFromProxy(kStart + milliseconds(1)));

  EXPECT_FALSE(deduplicator.CameFromProxy(kStart + seconds(1)));
  EXPECT_TRUE(deduplicator.CameDirectly(kStart + seconds(1) + milliseconds(1)));
}

TEST(SignalDeduplicator, ADirectCopyMatchesOnlyOneOfTheProxys) {
  SignalDeduplicator deduplicator;
  EXPECT_FALSE(deduplicator.CameDirectly(kStart));
  EXPECT_TRUE(deduplicator.CameFromProxy(kStart));
  EXPECT_FALSE(deduplicator.CameFromProxy(kStart + milliseconds(1)));
}

TEST(SignalDeduplicator, ADirectCopyOfLongAgoDoesNotMatchTheProxys) {
  SignalDeduplicator deduplicator;
  EXPECT_FALSE(deduplicator.CameDirectly(kStart));
  EXPECT_FALSE(deduplicator.CameFromProxy(kStart + SignalDeduplicator::kCounts + milliseconds(1)));
}

TEST(SignalDeduplicator, OneThatWasForwardedIsNotTakenBack) {
  SignalDeduplicator deduplicator;
  EXPECT_FALSE(deduplicator.CameFromProxy(kStart));
  deduplicator.Forwarded();
  EXPECT_FALSE(deduplicator.CameDirectly(kStart + seconds(1)));
}

}  // namespace
}  // namespace fulldeck::launcher
