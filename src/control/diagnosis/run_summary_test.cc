#include "diagnosis/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::diagnosis {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

RankSnapshot At(int rank, std::uint64_t step, std::uint64_t at_ns, std::uint64_t samples) {
  RankSnapshot snapshot;
  snapshot.rank = rank;
  snapshot.loop.emplace();
  snapshot.loop->step = step;
  snapshot.loop->step_at_ns = at_ns;
  snapshot.loop->samples = samples;
  return snapshot;
}

double Number(const events::Event& event, const char* name) {
  const events::Value* value = event.fields.Find(name);
  const double* number = value == nullptr ? nullptr : std::get_if<double>(value);
  return number == nullptr ? -1 : *number;
}

TEST(RunSummary, IsNothingWithoutASingleStep) {
  RunSummary summary;
  EXPECT_FALSE(summary.AtTheEnd(2));
  RankSnapshot silent;
  summary.Update({silent, At(1, 0, 0, 0)});
  EXPECT_FALSE(summary.AtTheEnd(2));
}

TEST(RunSummary, CountsFromTheFirstSnapshotSoThatResumedStepsAreNoSpeed) {
  RunSummary summary;
  // Resumed at step 1000; 40 steps in 20 s, 8 samples per rank and step.
  summary.Update({At(0, 1000, 100 * kSecond, 80), At(1, 1000, 100 * kSecond, 80)});
  summary.Update({At(0, 1020, 110 * kSecond, 240), At(1, 1020, 110 * kSecond, 240)});
  summary.Update({At(0, 1040, 120 * kSecond, 400), At(1, 1040, 120 * kSecond, 400)});
  const auto event = summary.AtTheEnd(2);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, "run-summary");
  EXPECT_EQ(event->fields.Int("steps"), 1040);
  EXPECT_EQ(event->fields.Int("ranks"), 2);
  EXPECT_DOUBLE_EQ(Number(*event, "steps_per_second"), 2);
  EXPECT_DOUBLE_EQ(Number(*event, "samples_per_second"), 32);
  EXPECT_EQ(event->fields.Int("global_batch"), 16);
  EXPECT_EQ(event->fields.Find("data_percent"), nullptr);
}

TEST(RunSummary, OfARunSeenOnceHasTheLastStepsPaceAndNoBatch) {
  RunSummary summary;
  RankSnapshot snapshot = At(0, 5, kSecond, 40);
  snapshot.loop->last_step_ns = kSecond / 4;
  summary.Update({snapshot});
  const auto event = summary.AtTheEnd(1);
  ASSERT_TRUE(event);
  EXPECT_DOUBLE_EQ(Number(*event, "steps_per_second"), 4);
  EXPECT_EQ(event->fields.Find("global_batch"), nullptr);
}

TEST(RunSummary, SharesOfTimeAddUpAndWaitingInCollectivesIsTakenOffCompute) {
  RunSummary summary;
  RankSnapshot reported = At(0, 10, kSecond, 0);  // reports its communication itself
  reported.loop->data_ns = 10;
  reported.loop->compute_ns = 60;
  reported.loop->communication_ns = 20;
  reported.loop->checkpoint_ns = 10;
  reported.waited_ns = 99;
  RankSnapshot plain = At(1, 10, kSecond, 0);  // does not: 30 of its 90 were in collectives
  plain.loop->data_ns = 10;
  plain.loop->compute_ns = 90;
  plain.waited_ns = 30;
  summary.Update({reported, plain});
  // The groups are gone at the end; the time waited in them still counts.
  plain.waited_ns = 0;
  summary.Update({reported, plain});
  const auto event = summary.AtTheEnd(2);
  ASSERT_TRUE(event);
  EXPECT_DOUBLE_EQ(Number(*event, "data_percent"), 10);
  EXPECT_DOUBLE_EQ(Number(*event, "compute_percent"), 60);
  EXPECT_DOUBLE_EQ(Number(*event, "communication_percent"), 25);
  EXPECT_DOUBLE_EQ(Number(*event, "checkpoint_percent"), 5);
}

TEST(RunSummary, WaitingBeforeTheFirstStepIsNoCommunicationOfSteps) {
  RunSummary summary;
  RankSnapshot waits = At(0, 0, 0, 0);  // waits 9 s for a rank that starts late
  waits.waited_ns = 9 * kSecond;
  summary.Update({waits});
  RankSnapshot trains = At(0, 60, 20 * kSecond, 0);
  trains.loop->compute_ns = 6 * kSecond;
  trains.waited_ns = 9 * kSecond + kSecond * 6 / 10;
  summary.Update({trains});
  const auto event = summary.AtTheEnd(1);
  ASSERT_TRUE(event);
  EXPECT_DOUBLE_EQ(Number(*event, "compute_percent"), 90);
  EXPECT_DOUBLE_EQ(Number(*event, "communication_percent"), 10);
}

}  // namespace
}  // namespace fulldeck::diagnosis
