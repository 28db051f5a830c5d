#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fulldeck::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string Refusal(std::string_view json, std::uint64_t data_bytes) {
  const auto header = ParseHeader(json, json.size() + 8 + data_bytes);
  return header ? "accepted" : header.error().message;
}

TEST(SafetensorsHeader, IsReadAsItWasWritten) {
  std::vector<TensorEntry> tensors = {
      {"a.weight", Dtype::kF32, {2, 3}}, {"b \"quoted\" \xc3\xa4", Dtype::kBf16, {}}, {"empty", Dtype::kI64, {0}}};
  const auto head = FormatHeader(tensors, {{"format", "pt"}});
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->size() % 8, 0U);
  const std::uint64_t file_bytes = head->size() + 24 + 2;
  const auto length = ParseHeaderLength({head->data(), 8}, file_bytes);
  ASSERT_TRUE(length.ok());
  EXPECT_EQ(*length + 8, head->size());
  const auto header = ParseHeader({head->data() + 8, *length}, file_bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->tensors, tensors);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->data_begin, head->size());
}

TEST(SafetensorsHeader, OfAFileWithoutTensorsIsFine) {
  EXPECT_EQ(Refusal("{}", 0), "accepted");
  EXPECT_EQ(Refusal("{\"__metadata__\":{}}   ", 0), "accepted");
  EXPECT_THAT(Refusal("{}", 1), HasSubstr("end at byte 0"));
}

TEST(SafetensorsHeader, TensorsMayStandInAnyOrder) {
  EXPECT_EQ(
      Refusal(
          R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},"a":{"shape":[3],"data_offsets":[0,3],"dtype":"I8"}})",
          5),
      "accepted");
}

TEST(SafetensorsHeader, WithAHoleAnOverlapOrAWrongEndIsRefusedAndTheTensorNamed) {
  const auto two = [](const char* first, const char* second) {
    return R"({"a":{"dtype":"U8","shape":[3],"data_offsets":)" + std::string(first) +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(Refusal(two("[0,3]", "[3,5]"), 5), "accepted");
  EXPECT_THAT(Refusal(two("[0,3]", "[4,6]"), 6), HasSubstr("tensor \"b\" has bytes 4 to 6"));
  EXPECT_THAT(Refusal(two("[0,3]", "[2,4]"), 5), HasSubstr("tensor \"b\""));
  EXPECT_THAT(Refusal(two("[1,4]", "[4,6]"), 6), HasSubstr("tensor \"a\""));
  EXPECT_THAT(Refusal(two("[0,3]", "[0,2]"), 5), HasSubstr("tensor \"a\""));
  EXPECT_THAT(Refusal(two("[0,3]", "[3,5]"), 4), HasSubstr("cut short"));
  EXPECT_THAT(Refusal(two("[0,3]", "[3,5]"), 6), HasSubstr("end at byte 5"));
  EXPECT_THAT(Refusal(two("[0,4]", "[4,6]"), 6), HasSubstr("not what its shape and type need"));
  EXPECT_THAT(Refusal(two("[3,0]", "[3,5]"), 5), HasSubstr("tensor \"a\""));
}

TEST(SafetensorsHeader, WithSizesThatOverflowIsRefused) {
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("tensor \"a\""));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F64","shape":[18446744073709551616],"data_offsets":[0,0]}})", 0),
              HasSubstr("not whole"));
  EXPECT_THAT(
      Refusal(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}})", 0),
      HasSubstr("tensor \"a\""));
}

TEST(SafetensorsHeader, ThatIsNotTheFormatIsRefused) {
  for (
      const char* bad : {
          "",
          "[]",
          " {}",
          "{",
          "{}x",
          "{\"a\":1}",
          "{\"a\":null}",
          "{\"a\":[]}",
          "{\"a\":\"b\"}",
          "\xef\xbb\xbf{}",
          R"({"a":{}})",
          R"({"a":{"dtype":"U8","shape":[1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})",
          R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":"01"}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"n":1}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"n":{}}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"n":"1","n":"2"}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":"n"})",
          "{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
      }) {
    EXPECT_NE(Refusal(bad, 1), "accepted") << bad;
  }
  std::string deep = R"({"a":{"dtype":"U8","shape":)" + std::string(100000, '[');
  EXPECT_NE(Refusal(deep, 1), "accepted");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})", 1),
              HasSubstr("too many dimensions"));
}

TEST(SafetensorsHeader, OfAnImpossibleLengthIsRefusedBeforeAnythingIsAllocated) {
  const auto length = [](std::uint64_t value, std::uint64_t file_bytes) {
    std::string eight(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) eight[i] = static_cast<char>(value >> (8 * i));
    return ParseHeaderLength(eight, file_bytes);
  };
  EXPECT_TRUE(length(100'000'000, 200'000'000).ok());
  EXPECT_FALSE(length(100'000'001, 200'000'000).ok());
  EXPECT_FALSE(length(UINT64_MAX, 200'000'000).ok());
  EXPECT_FALSE(length(93, 100).ok());
  EXPECT_TRUE(length(92, 100).ok());
  EXPECT_FALSE(ParseHeaderLength("1234567", 7).ok());
}

TEST(SafetensorsHeader, IsNotWrittenForNamesThatCannotBeRead) {
  for (const char* name : {"__metadata__", "same", "\xff"}) {
    std::vector<TensorEntry> tensors = {{"same", Dtype::kU8, {1}}, {name, Dtype::kU8, {1}}};
    EXPECT_FALSE(FormatHeader(tensors, {}).ok()) << name;
  }
  std::vector<TensorEntry> huge = {{"huge", Dtype::kF64, {std::uint64_t{1} << 62}}};
  EXPECT_FALSE(FormatHeader(huge, {}).ok());
}

TEST(SafetensorsHeader, EveryTypeHasItsNameAndSize) {
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::size_t>>{{"BOOL", 1},
                                                                                    {"U8", 1},
                                                                                    {"I8", 1},
                                                                                    {"I16", 2},
                                                                                    {"U16", 2},
                                                                                    {"F16", 2},
                                                                                    {"BF16", 2},
                                                                                    {"I32", 4},
                                                                                    {"U32", 4},
                                                                                    {"F32", 4},
                                                                                    {"I64", 8},
                                                                                    {"U64", 8},
                                                                                    {"F64", 8},
                                                                                    {"C64", 8},
                                                                                    {"F8_E4M3", 1},
                                                                                    {"F8_E5M2", 1}}) {
    const auto dtype = ParseDtype(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(NameOf(*dtype), name);
    EXPECT_EQ(BytesOf(*dtype), bytes) << name;
  }
  EXPECT_EQ(ParseDtype("f32"), std::nullopt);
}

}  // namespace
}  // namespace fulldeck::checkpoint
