#include "diagnosis/straggler_verdict.h"

#include <gtest/gtest.h>

#include <random>

namespace fulldeck::diagnosis {
namespace {

using base::Duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Eight ranks that compute and then wait for the slowest. Looked at every quarter of a second.
class Stragglers : public ::testing::Test {
 protected:
  // After how many steps somebody was named; nothing when nobody was in so many.
  std::optional<std::uint64_t> Run(std::uint64_t steps, Duration step, double slow, int slow_rank, double noise) {
    std::mt19937 random(7);
    std::normal_distribution<double> spread(1.0, noise);
    std::vector<std::optional<WaitingNow>> ranks(8, WaitingNow());
    base::TimePoint now{seconds(10)};
    base::TimePoint look = now;
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
      if (now - look < milliseconds(250)) continue;
      look = now;
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

TEST_F(Stragglers, ItIsToldOnce) {
  ASSERT_TRUE(Run(100, milliseconds(300), 1.3, 2, 0.03));
  EXPECT_FALSE(Run(100, milliseconds(300), 1.3, 2, 0.03));
  ASSERT_TRUE(judge_.last());
  EXPECT_EQ(judge_.last()->local_rank, 2);
}

TEST_F(Stragglers, OfTwoRanksNobodyCanTell) {
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
