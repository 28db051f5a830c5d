#include "base/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::base {
namespace {

TEST(DynamicLibrary, FindsFunctionsByNameAndTypes) {
  const auto library = DynamicLibrary::Open("libm.so.6");
  ASSERT_TRUE(library.ok());
  const auto root = library->Find<double(double)>("sqrt");
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(root(9.0), 3.0);
  EXPECT_EQ(library->Find<void()>("no_such_function"), nullptr);
}

TEST(DynamicLibrary, ReportsTheMessageOfTheLoader) {
  const auto library = DynamicLibrary::Open("libno-such-vendor.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.error().message, testing::HasSubstr("libno-such-vendor.so.1: cannot open shared object file"));
}

}  // namespace
}  // namespace fulldeck::base
