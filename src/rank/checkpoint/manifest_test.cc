#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/hash.h"
#include "checkpoint/scalar_state.h"

namespace fulldeck::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  Manifest manifest;
  manifest.step = 1234;
  manifest.world_size = 8;
  manifest.saved_at = 1760000000;
  manifest.score = 0.1;
  manifest.files = {{"model.safetensors", 130, 100, 7, {{"a", 10, 1}, {"b \"\xc3\xa4\"", 20, UINT64_MAX}}},
                    {"state.json", 12, 12, 8, {}}};
  return manifest;
}

// The same text with a matching checksum, as written by someone who edits manifests by hand.
std::string Sealed(const std::string& body) {
  return body + ",\n\"manifest_hash\":\"" + base::FormatHash(base::HashOf(body)) + "\"}\n";
}

TEST(Manifest, IsReadAsItWasWritten) {
  const auto read = ParseManifest(FormatManifest(Example()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, Example());
  EXPECT_EQ(read->bytes(), 142U);
}

TEST(Manifest, WithAnyBitFlippedOrAnyEndMissingIsRefused) {
  std::string text = FormatManifest(Example());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(ParseManifest(text).ok()) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_FALSE(ParseManifest({text.data(), length}).ok()) << length;
  EXPECT_FALSE(ParseManifest(text + " ").ok());
}

TEST(Manifest, OfAnotherVersionSaysSo) {
  const auto read = ParseManifest(
      Sealed(R"({"format":"fulldeck-checkpoint","version":2,"step":1,"world_size":1,"saved_at":1,"files":[])"));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("version 2"));
}

TEST(Manifest, ThatIsSealedButWrongIsRefused) {
  const std::string begin = R"({"format":"fulldeck-checkpoint","version":1,"step":1,"world_size":1,"saved_at":1,)";
  EXPECT_TRUE(ParseManifest(Sealed(begin + R"("files":[])")).ok());
  for (
      const char* bad :
      {R"("files":{})", R"("files":[1])",
       R"("files":[{"name":"../x","bytes":0,"head_bytes":0,"head_hash":"0000000000000000","tensors":[]}])",
       R"("files":[{"name":".x","bytes":0,"head_bytes":0,"head_hash":"0000000000000000","tensors":[]}])",
       R"("files":[{"name":"a/b","bytes":0,"head_bytes":0,"head_hash":"0000000000000000","tensors":[]}])",
       R"("files":[{"name":"a","bytes":1,"head_bytes":0,"head_hash":"0000000000000000","tensors":[]}])",
       R"("files":[{"name":"a","bytes":-1,"head_bytes":0,"head_hash":"0000000000000000","tensors":[]}])",
       R"("files":[{"name":"a","bytes":0,"head_bytes":0,"head_hash":"000000000000000","tensors":[]}])",
       R"("files":[{"name":"a","bytes":0,"head_bytes":0,"head_hash":"0000000000000000","tensors":[["t",1]]}])",
       R"("files":[{"name":"a","bytes":0,"head_bytes":1,"head_hash":"0000000000000000","tensors":[["t",18446744073709551615,"0000000000000000"]]}])",
       R"("files":[],"score":"x")", R"("files":[],"score":null)"}) {
    EXPECT_FALSE(ParseManifest(Sealed(begin + bad)).ok()) << bad;
  }
  EXPECT_FALSE(ParseManifest(Sealed("not json")).ok());
  EXPECT_FALSE(ParseManifest("").ok());
}

TEST(ScalarState, NumbersAndTextsComeBackBitByBit) {
  ScalarState state;
  state["true"] = true;
  state["false"] = false;
  state["least"] = std::numeric_limits<std::int64_t>::min();
  state["most"] = std::numeric_limits<std::int64_t>::max();
  state["whole"] = 3.0;
  state["third"] = 1.0 / 3;
  state["tiny"] = std::numeric_limits<double>::denorm_min();
  state["huge"] = -std::numeric_limits<double>::max();
  state["minus zero"] = -0.0;
  state["infinite"] = -std::numeric_limits<double>::infinity();
  state["text"] = std::string("a \"b\"\n\t\xc3\xa4");
  state["bytes"] = std::string("\xff\x00\x01", 3);
  state["nothing"] = std::string();
  const auto text = FormatScalars(state);
  ASSERT_TRUE(text.ok());
  const auto read = ParseScalars(*text);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, state);
  EXPECT_TRUE(std::signbit(std::get<double>(read->at("minus zero"))));
  const auto nan = ParseScalars(*FormatScalars({{"nan", std::nan("")}}));
  ASSERT_TRUE(nan.ok());
  EXPECT_TRUE(std::isnan(std::get<double>(nan->at("nan"))));
}

TEST(ScalarState, ThatIsNotOursIsRefused) {
  EXPECT_TRUE(ParseScalars("{}").ok());
  for (const char* bad : {"", "[]", "1", "{\"a\":null}", "{\"a\":[]}", "{\"a\":{}}", "{\"a\":{\"hex\":\"0\"}}",
                          "{\"a\":{\"hex\":\"0G\"}}", "{\"a\":{\"hex\":1}}", "{\"a\":{\"hex\":\"00\",\"b\":1}}",
                          "{\"a\":{\"double_bits\":\"00\"}}", "{\"a\":{\"other\":\"00\"}}",
                          "{\"a\":18446744073709551615}", "{\"a\":1,\"a\":2}", "{\"a\":{\"hex\":{\"b\":{}}}}"}) {
    EXPECT_FALSE(ParseScalars(bad).ok()) << bad;
  }
  EXPECT_FALSE(FormatScalars({{"\xff", true}}).ok());
}

}  // namespace
}  // namespace fulldeck::checkpoint
