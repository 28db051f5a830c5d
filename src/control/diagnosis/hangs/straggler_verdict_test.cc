#include "diagnosis/hangs/straggler_verdict.h"

#include <gtest/gtest.h>

#include <random>

namespace fulldeck::diagnosis {
namespace {

using base::Duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Eight ranks that compute and then wait for the slowest. Sampled every quarter of a second.
class Stragglers : public ::testing::Test {
 protected:
  // The number of steps after which a straggler was reported; nullopt if none was within `steps`.
  std::optional<std::uint64_t> Run(std::uint64_t steps, Duration step, double slow, int slow_rank, double noise) {
    std::mt19937 random(7);
    std::normal_distribution<double> spread(1.0, noise);
    std::vector<std::optional<WaitingNow>> ranks(8, WaitingNow());
    base::TimePoint now{seconds(10)};
    base::TimePoint sample = now;
    for (std::uint64_t i = 1; i <= steps; ++i) {
      std::vector<Duration> computes;
      for (int rank = 0; rank < 8; ++rank) {
        const double factor = std::max(0.2, spread(random)) * (rank == slow_rank ? slow : 1.0);
        computes.emplace_back(static_cast<std::int64_t>(factor * static_cast<double>(step.count())));
      }
      const Duration longest = *std::max_element(computes.begin(), computes.end());
      for (std::size_t rank = 0; rank < 8; ++rank) {
        ranks[rank]->steps = i;
        ranks[rank]->waited += longest - computes[rank] + milliseconds(2);
      }
      now += longest + milliseconds(2);
      if (now - sample < milliseconds(250)) continue;
      sample = now;
      if (const auto found = judge_.Judge(now, ranks)) {
        found_ = *found;
        return i;
      }
    }
    return std::nullopt;
  }

  // The same, but each rank only samples, every `sample_interval`, whether it is in a collective.
  std::optional<std::uint64_t> RunSampled(std::uint64_t steps, Duration step, double slow, int slow_rank, double noise,
                                          Duration sample_interval) {
    std::mt19937 random(11);
    std::normal_distribution<double> spread(1.0, noise);
    std::uniform_real_distribution<double> jitter(0.9, 1.3);
    const auto times = [](Duration time, double factor) {
      return Duration(static_cast<std::int64_t>(static_cast<double>(time.count()) * factor));
    };
    std::vector<std::optional<WaitingNow>> ranks(8, WaitingNow{.sampled = true});
    base::TimePoint now{seconds(10)};
    std::vector<base::TimePoint> last_sample(8, now);
    std::vector<base::TimePoint> next_sample;
    for (int rank = 0; rank < 8; ++rank) next_sample.push_back(now + times(sample_interval, jitter(random) - 0.9));
    std::vector<bool> was_in_call(8, false);
    base::TimePoint judged = now;
    for (std::uint64_t i = 1; i <= steps; ++i) {
      std::vector<Duration> computes;
      for (int rank = 0; rank < 8; ++rank) {
        computes.push_back(times(step, std::max(0.2, spread(random)) * (rank == slow_rank ? slow : 1.0)));
      }
      const base::TimePoint end = now + *std::max_element(computes.begin(), computes.end()) + milliseconds(2);
      for (std::size_t rank = 0; rank < 8; ++rank) {
        for (; next_sample[rank] < end; next_sample[rank] += times(sample_interval, jitter(random))) {
          if (was_in_call[rank]) ranks[rank]->waited += next_sample[rank] - last_sample[rank];
          was_in_call[rank] = next_sample[rank] >= now + computes[rank];
          last_sample[rank] = next_sample[rank];
        }
        ranks[rank]->steps = i;
      }
      now = end;
      if (now - judged < milliseconds(250)) continue;
      judged = now;
      if (const auto found = judge_.Judge(now, ranks)) {
        found_ = *found;
        return i;
      }
    }
    return std::nullopt;
  }

  StragglerJudge judge_;
  Straggler found_;
};

TEST_F(Stragglers, ARankThatIsThirtyPercentSlowerIsNamedWithinTwentySteps) {
  for (const int slow : {0, 3, 7}) {
    judge_ = StragglerJudge();
    const auto named = Run(100, milliseconds(300), 1.3, slow, 0.03);
    ASSERT_TRUE(named);
    EXPECT_LE(*named, 20U);
    EXPECT_EQ(found_.local_rank, slow);
    EXPECT_NEAR(found_.share, 0.3 / 1.3, 0.05);
  }
}

TEST_F(Stragglers, ShortStepsTakeAFewSeconds) {
  const auto named = Run(2'000, milliseconds(10), 1.3, 5, 0.05);
  ASSERT_TRUE(named);
  EXPECT_LE(*named, 500U);
  EXPECT_EQ(found_.local_rank, 5);
}

TEST_F(Stragglers, TenThousandCleanStepsNameNobody) {
  EXPECT_FALSE(Run(10'000, milliseconds(300), 1.0, 0, 0.05));
  judge_ = StragglerJudge();
  EXPECT_FALSE(Run(10'000, milliseconds(20), 1.0, 0, 0.3)) << "a noisy machine";
}

TEST_F(Stragglers, SampledSumsShowItToo) {
  for (const int slow : {0, 3, 7}) {
    judge_ = StragglerJudge();
    const auto named = RunSampled(100, milliseconds(600), 1.3, slow, 0.03, milliseconds(50));
    ASSERT_TRUE(named);
    EXPECT_LE(*named, 20U);
    EXPECT_EQ(found_.local_rank, slow);
    EXPECT_NEAR(found_.share, 0.3 / 1.3, 0.07);
  }
  for (const int step : {20, 70, 300}) {
    judge_ = StragglerJudge();
    const auto named = RunSampled(10'000, milliseconds(step), 1.3, 5, 0.05, milliseconds(100));
    ASSERT_TRUE(named) << step;
    EXPECT_EQ(found_.local_rank, 5);
  }
}

TEST_F(Stragglers, SampledSumsOfCleanStepsNameNobody) {
  for (const int sample_interval : {50, 100}) {
    for (const int step : {3, 20, 70, 300, 2'000}) {
      judge_ = StragglerJudge();
      EXPECT_FALSE(RunSampled(10'000, milliseconds(step), 1.0, 0, 0.05, milliseconds(sample_interval))) << step;
      judge_ = StragglerJudge();
      EXPECT_FALSE(RunSampled(10'000, milliseconds(step), 1.0, 0, 0.3, milliseconds(sample_interval)))
          << step << " ms on a noisy machine, found " << found_.local_rank << " " << found_.share;
    }
  }
}

TEST_F(Stragglers, ItIsReportedOnce) {
  ASSERT_TRUE(Run(100, milliseconds(300), 1.3, 2, 0.03));
  EXPECT_FALSE(Run(100, milliseconds(300), 1.3, 2, 0.03));
  ASSERT_TRUE(judge_.last());
  EXPECT_EQ(judge_.last()->local_rank, 2);
}

TEST_F(Stragglers, OfTwoRanksNothingCanBeConcluded) {
  std::vector<std::optional<WaitingNow>> ranks(2, WaitingNow());
  base::TimePoint now{seconds(10)};
  for (int i = 1; i < 200; ++i) {
    now += milliseconds(250);
    for (auto& rank : ranks) rank->steps += 2;
    ranks[0]->waited += milliseconds(200);
    EXPECT_FALSE(judge_.Judge(now, ranks));
  }
}

}  // namespace
}  // namespace fulldeck::diagnosis
