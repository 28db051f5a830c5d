#include "imagery/png_plain.h"

#include <gtest/gtest.h>

#include "imagery/decoders.h"
#include "imagery/files.h"

namespace fulldeck::imagery {
namespace {

// Smooth in some rows and noisy in others, so that an encoder uses every filter.
Image8 Mixed(int width, int height, int bands) {
  Image8 image{width, height, bands, {}};
  std::uint32_t state = 7;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * bands; ++x) {
      state = state * 1664525 + 1013904223;
      const std::uint32_t noise = state >> 24;
      const int kind = y / 3 % 4;
      const auto slope = static_cast<std::uint32_t>(kind == 0 ? x : kind == 1 ? y * 5 : kind == 2 ? x + y * 3 : 0);
      image.values.push_back(static_cast<std::uint8_t>(kind == 3 ? noise : slope + noise % 3));
    }
  }
  return image;
}

#ifdef FULLDECK_HAS_DEFLATE
TEST(PlainPng, IsWhatLibpngReads) {
  for (int bands = 1; bands <= 4; ++bands) {
    for (const int width : {1, 2, 37, 64}) {
      const Image8 image = Mixed(width, 41, bands);
      const std::string bytes = EncodePng(image);
      const auto plain = DecodePlainPng(bytes);
      ASSERT_TRUE(plain.has_value());
      EXPECT_EQ(plain->image, image);
      const auto slow = DecodePngWithLibpng(bytes, Values::kColors);
      ASSERT_TRUE(slow.ok());
      EXPECT_EQ(std::get<Image8>(*slow), image);
    }
  }
}
#endif

TEST(PlainPng, NoDamageIsReadOtherwiseThanByLibpng) {
  const std::string whole = EncodePng(Mixed(9, 8, 3));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x15);
    const auto ours = DecodePng(damaged, Values::kColors);
    const auto slow = DecodePngWithLibpng(damaged, Values::kColors);
    ASSERT_EQ(ours.ok(), slow.ok()) << at;
    if (ours.ok()) {
      EXPECT_EQ(std::get<Image8>(*ours), std::get<Image8>(*slow)) << at;
    }
    EXPECT_FALSE(DecodePng(whole.substr(0, at), Values::kColors).ok()) << at;
  }
}

}  // namespace
}  // namespace fulldeck::imagery
