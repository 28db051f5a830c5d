#include <gtest/gtest.h>

#include <set>
#include <string>

#include "wire/bytes_header.h"
#include "wire/exit_codes.h"
#include "wire/variables.h"

namespace fulldeck::wire {
namespace {

TEST(ExitCodes, AreDistinctAndOursStayClearOfScriptsAndShells) {
  std::set<int> codes;
  for (const ExitCodeRow& row : ExitCodes()) {
    const int code = static_cast<int>(row.code);
    EXPECT_TRUE(codes.insert(code).second) << row.name;
    EXPECT_TRUE(code <= 2 || (code >= 80 && code < 126)) << row.name;
    EXPECT_FALSE(std::string(row.what_to_do).empty());
  }
}

TEST(Variables, AreNamedOnce) {
  std::set<std::string> names;
  for (const VariableRow& row : Variables()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(BytesHeader, RefusesOtherFormatsOtherVersionsAndImpossibleLengths) {
  const BytesHeader header = MakeHeader("FDTESTED", 3, 100);
  EXPECT_TRUE(CheckHeader(header, "FDTESTED", 3, 100, "it").ok());
  EXPECT_EQ(CheckHeader(header, "FDOTHERS", 3, 100, "it").error().message,
            "it does not start with FDOTHERS: it was written by something else");
  EXPECT_EQ(CheckHeader(header, "FDTESTED", 4, 100, "it").error().message,
            "it has version 3, this fulldeck speaks version 4: use the same fulldeck on both sides");
  EXPECT_FALSE(CheckHeader(header, "FDTESTED", 3, 99, "it").ok());
}

}  // namespace
}  // namespace fulldeck::wire
