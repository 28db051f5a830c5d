#include "base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace fulldeck::base {
namespace {

TEST(Result, HoldsAValueThatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, CarriesTheKernelsReasonAsText) {
  const Result<int> result = ErrnoError("/dev/gcu0", EACCES);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "/dev/gcu0: Permission denied");
  EXPECT_EQ(result.error().system_error, EACCES);
}

TEST(Result, OfNothingIsDoneOrFailed) {
  EXPECT_TRUE(Result<void>().ok());
  EXPECT_EQ(Result<void>(Error{"no"}).error().message, "no");
}

TEST(ResultDeathTest, EndsTheProcessWhenAFailureIsUsedAsAValue) {
  const Result<int> result = Error{"no"};
  EXPECT_DEATH({ [[maybe_unused]] const int value = result.value(); }, "fulldeck: internal error at .*result.h");
}

}  // namespace
}  // namespace fulldeck::base
