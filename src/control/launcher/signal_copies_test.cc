#include "launcher/signal_copies.h"

#include <gtest/gtest.h>

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const base::TimePoint kStart{};

TEST(SignalCopies, ASignalToTheFrontAloneIsPassedOn) {
  SignalCopies copies;
  EXPECT_FALSE(copies.CameFromFront(kStart));
  copies.PassedOn();
  EXPECT_FALSE(copies.CameFromFront(kStart + seconds(1)));
}

TEST(SignalCopies, ASignalToEveryProcessIsNotPassedOnWhicheverCopyComesFirst) {
  SignalCopies copies;
  EXPECT_FALSE(copies.CameStraight(kStart));
  EXPECT_TRUE(copies.CameFromFront(kStart + milliseconds(1)));

  EXPECT_FALSE(copies.CameFromFront(kStart + seconds(1)));
  EXPECT_TRUE(copies.CameStraight(kStart + seconds(1) + milliseconds(1)));
}

TEST(SignalCopies, AStraightCopyAnswersForOneOfTheFrontsAlone) {
  SignalCopies copies;
  EXPECT_FALSE(copies.CameStraight(kStart));
  EXPECT_TRUE(copies.CameFromFront(kStart));
  EXPECT_FALSE(copies.CameFromFront(kStart + milliseconds(1)));
}

TEST(SignalCopies, AStraightCopyOfLongAgoHasNothingToDoWithTheFronts) {
  SignalCopies copies;
  EXPECT_FALSE(copies.CameStraight(kStart));
  EXPECT_FALSE(copies.CameFromFront(kStart + SignalCopies::kCounts + milliseconds(1)));
}

TEST(SignalCopies, OneThatWasPassedOnIsNotTakenBack) {
  SignalCopies copies;
  EXPECT_FALSE(copies.CameFromFront(kStart));
  copies.PassedOn();
  EXPECT_FALSE(copies.CameStraight(kStart + seconds(1)));
}

}  // namespace
}  // namespace fulldeck::launcher
