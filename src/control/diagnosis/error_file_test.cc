#include "diagnosis/error_file.h"

#include <gtest/gtest.h>

namespace fulldeck::diagnosis {
namespace {

TEST(ErrorFile, IsReadInBothOfTorchsForms) {
  const auto full = ParseErrorFile(
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback …", "timestamp": "1700000000"}}})");
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->message, "ValueError: no");
  EXPECT_EQ(full->call_stack, "Traceback …");
  EXPECT_EQ(full->unix_seconds, 1700000000.0);
  const auto plain = ParseErrorFile(R"({"message": "it broke", "timestamp": 12.5})");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->message, "it broke");
  EXPECT_EQ(plain->unix_seconds, 12.5);
}

TEST(ErrorFile, IsReadAsItWasWritten) {
  const std::string message = "rank 0 (host \"a\\b\", pid 7)\nexited with code 1 ä";
  const std::string text = FormatErrorFile(message, 1700000000);
  const auto read = ParseErrorFile(text);
  ASSERT_TRUE(read.has_value()) << text;
  EXPECT_EQ(read->message, message);
  EXPECT_EQ(read->unix_seconds, 1700000000.0);
  EXPECT_TRUE(ParseErrorFile(FormatErrorFile("host \xff\xfe", 1)).has_value());
}

TEST(ErrorFile, IsNothingForOtherTexts) {
  for (const char* text : {"", "{", "[]", "3", R"({"other": 1})", R"({"message": 3})", "not json"}) {
    EXPECT_FALSE(ParseErrorFile(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace fulldeck::diagnosis
