// Recorded texts for tests: FixtureText("texts/efsmi/t20-1.20.0.txt") returns the bytes of tests/fixtures/texts/….
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace fulldeck::testing {

inline std::string FixtureText(const std::string& path) {
  std::ifstream file(std::string(FULLDECK_FIXTURES) + "/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << "no fixture " << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace fulldeck::testing
