#include "checkpoint/retention.h"

#include <gtest/gtest.h>

namespace fulldeck::checkpoint {
namespace {

using Trust = KeptCheckpoint::Trust;
using Steps = std::vector<std::uint64_t>;

TEST(Retention, KeepsTheLastAndTheBest) {
  const std::vector<KeptCheckpoint> all = {{1, 0.5, Trust::kVerified},
                                           {2, 0.9, Trust::kUnknown},
                                           {3, 0.7, Trust::kVerified},
                                           {4, std::nullopt, Trust::kUnknown},
                                           {5, 0.1, Trust::kVerified}};
  EXPECT_EQ(StepsToRemove(all, {0, 0}), Steps{});
  EXPECT_EQ(StepsToRemove(all, {2, 0}), (Steps{1, 2, 3}));
  EXPECT_EQ(StepsToRemove(all, {1, 1}), (Steps{1, 3, 4}));
  EXPECT_EQ(StepsToRemove(all, {1, 2}), (Steps{1, 4}));
  EXPECT_EQ(StepsToRemove(all, {9, 0}), Steps{});
}

TEST(Retention, NeverRemovesTheNewestVerifiedOne) {
  EXPECT_EQ(StepsToRemove({{1, {}, Trust::kVerified}, {2, {}, Trust::kVerified}, {3, {}, Trust::kUnknown}}, {1, 0}),
            Steps{1});
  EXPECT_EQ(StepsToRemove({{1, {}, Trust::kVerified}, {2, {}, Trust::kBad}, {3, {}, Trust::kBad}}, {1, 0}), Steps{});
}

TEST(Retention, RemovesNothingWhileNoneIsVerified) {
  EXPECT_EQ(StepsToRemove({{1, {}, Trust::kUnknown}, {2, {}, Trust::kUnknown}, {3, {}, Trust::kBad}}, {1, 0}), Steps{});
  EXPECT_EQ(StepsToRemove({}, {1, 0}), Steps{});
}

TEST(Retention, ABadOneTakesNoPlaceAndGoesOnlyWhenItIsOlderThanAllThatStay) {
  EXPECT_EQ(StepsToRemove({{1, {}, Trust::kVerified}, {2, 0.9, Trust::kBad}, {3, {}, Trust::kVerified}}, {2, 1}),
            Steps{});
  EXPECT_EQ(StepsToRemove({{1, {}, Trust::kBad}, {2, {}, Trust::kVerified}, {3, {}, Trust::kVerified}}, {2, 0}),
            Steps{1});
  EXPECT_EQ(StepsToRemove({{2, {}, Trust::kVerified}, {9, {}, Trust::kBad}}, {1, 0}), Steps{});
}

}  // namespace
}  // namespace fulldeck::checkpoint
