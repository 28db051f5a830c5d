#include "launcher/restart_policy.h"

#include <gtest/gtest.h>

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;

AttemptRecord Attempt(int seconds, std::optional<std::uint64_t> step = std::nullopt) {
  return {milliseconds(seconds * 1000), step};
}

struct RestartCase {
  const char* name;
  std::vector<AttemptRecord> attempts;
  int max_restarts;
  AfterFailure what;
  int delay_ms;
};

class RestartTable : public testing::TestWithParam<RestartCase> {};

TEST_P(RestartTable, Decides) {
  const RestartDecision decision = AfterAttempt(GetParam().attempts, GetParam().max_restarts);
  EXPECT_EQ(decision.what, GetParam().what);
  EXPECT_EQ(decision.delay, milliseconds(GetParam().delay_ms));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, RestartTable,
    testing::Values(
        RestartCase{"NoneAllowed", {Attempt(500)}, 0, AfterFailure::kGiveUp, 0},
        RestartCase{"OneLeftAfterProgress", {Attempt(500)}, 1, AfterFailure::kRestart, 100},
        RestartCase{"OneLeftWithoutProgress", {Attempt(5)}, 1, AfterFailure::kRestart, 1000},
        RestartCase{"SecondWithoutProgressWaitsLonger", {Attempt(5), Attempt(5)}, 9, AfterFailure::kRestart, 2000},
        RestartCase{"ThreeWithoutProgress", {Attempt(5), Attempt(5), Attempt(5)}, 9, AfterFailure::kCrashLoop, 0},
        RestartCase{"ThreeButNoneLeft", {Attempt(5), Attempt(5), Attempt(5)}, 2, AfterFailure::kGiveUp, 0},
        RestartCase{"AMinuteOfLifeIsProgress", {Attempt(5), Attempt(5), Attempt(60)}, 9, AfterFailure::kRestart, 100},
        RestartCase{
            "AStepFurtherIsProgress", {Attempt(5, 10), Attempt(5, 10), Attempt(5, 11)}, 9, AfterFailure::kRestart, 100},
        RestartCase{"TheSameStepIsNone",
                    {Attempt(500, 10), Attempt(500, 10), Attempt(500, 10), Attempt(500, 9)},
                    9,
                    AfterFailure::kCrashLoop,
                    0},
        RestartCase{
            "StepZeroIsNone", {Attempt(500, 0), Attempt(500, 0), Attempt(500, 0)}, 9, AfterFailure::kCrashLoop, 0}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fulldeck::launcher
