#include "trainer/schedule.h"

#include <gtest/gtest.h>

namespace fulldeck::trainer {
namespace {

TEST(Schedule, WarmsUpInALineAndDecaysToTheEnd) {
  struct Row {
    recipe::Decay decay;
    double power;
    std::int64_t step;
    double lr;
  };
  const Row rows[] = {
      {recipe::Decay::kPoly, 1, 0, 0.1},      {recipe::Decay::kPoly, 1, 5, 0.55},
      {recipe::Decay::kPoly, 1, 10, 1.0},     {recipe::Decay::kPoly, 1, 60, 0.6},
      {recipe::Decay::kPoly, 1, 110, 0.2},    {recipe::Decay::kPoly, 1, 500, 0.2},
      {recipe::Decay::kPoly, 2, 60, 0.4},     {recipe::Decay::kCosine, 1, 10, 1.0},
      {recipe::Decay::kCosine, 1, 60, 0.6},   {recipe::Decay::kCosine, 1, 110, 0.2},
      {recipe::Decay::kConstant, 1, 5, 0.55}, {recipe::Decay::kConstant, 1, 109, 1.0},
  };
  for (const Row& row : rows) {
    const Schedule schedule = {1.0, 0.1, 0.2, 10, 110, row.decay, row.power};
    EXPECT_NEAR(schedule.At(row.step), row.lr, 1e-12) << static_cast<int>(row.decay) << " at " << row.step;
  }
}

TEST(Schedule, HasNoWarmUpWhereNoneIsAskedForAndNoEndWhereTheWarmUpIsLonger) {
  EXPECT_EQ((Schedule{1.0, 0.0, 0.0, 0, 10, recipe::Decay::kPoly, 1}).At(0), 1.0);
  const Schedule all_warmup = {1.0, 0.0, 0.0, 100, 50, recipe::Decay::kPoly, 1};
  EXPECT_NEAR(all_warmup.At(49), 0.49, 1e-12);
}

}  // namespace
}  // namespace fulldeck::trainer
