#include "trainer/schedule.h"

#include <gtest/gtest.h>

namespace fulldeck::trainer {
namespace {

TEST(Schedule, WarmsUpInALineAndDecaysToTheEnd) {
  struct Row {
    config::Decay decay;
    double power;
    std::int64_t step;
    double lr;
  };
  const Row rows[] = {
      {config::Decay::kPoly, 1, 0, 0.1},      {config::Decay::kPoly, 1, 5, 0.55},
      {config::Decay::kPoly, 1, 10, 1.0},     {config::Decay::kPoly, 1, 60, 0.6},
      {config::Decay::kPoly, 1, 110, 0.2},    {config::Decay::kPoly, 1, 500, 0.2},
      {config::Decay::kPoly, 2, 60, 0.4},     {config::Decay::kCosine, 1, 10, 1.0},
      {config::Decay::kCosine, 1, 60, 0.6},   {config::Decay::kCosine, 1, 110, 0.2},
      {config::Decay::kConstant, 1, 5, 0.55}, {config::Decay::kConstant, 1, 109, 1.0},
  };
  for (const Row& row : rows) {
    const Schedule schedule = {1.0, 0.1, 0.2, 10, 110, row.decay, row.power};
    EXPECT_NEAR(schedule.At(row.step), row.lr, 1e-12) << static_cast<int>(row.decay) << " at " << row.step;
  }
}

TEST(Schedule, HasNoWarmUpWhereNoneIsAskedForAndNoEndWhereTheWarmUpIsLonger) {
  EXPECT_EQ((Schedule{1.0, 0.0, 0.0, 0, 10, config::Decay::kPoly, 1}).At(0), 1.0);
  const Schedule all_warmup = {1.0, 0.0, 0.0, 100, 50, config::Decay::kPoly, 1};
  EXPECT_NEAR(all_warmup.At(49), 0.49, 1e-12);
}

}  // namespace
}  // namespace fulldeck::trainer
