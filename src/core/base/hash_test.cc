#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fulldeck::base {
namespace {

std::string Numbers(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((i * 131 + 7) & 255);
  return bytes;
}

// As Python's xxhash.xxh3_64 gives them. XXH3 has one way for up to 240 bytes and another for more.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(FormatHash(HashOf("")), "2d06800538d394c2");
  EXPECT_EQ(FormatHash(HashOf("abc")), "78af5f94892f3950");
  EXPECT_EQ(FormatHash(HashOf(Numbers(240))), "b6cfaf343fab81e6");
  EXPECT_EQ(FormatHash(HashOf(Numbers(241))), "956cae592c67279e");
  EXPECT_EQ(FormatHash(HashOf(Numbers(1000))), "571d5cbfef44331b");
}

TEST(Hash, FindsEveryFlippedBit) {
  std::string bytes = Numbers(777);
  const std::uint64_t right = HashOf(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(HashOf(bytes), right) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
}

TEST(Hash, NoTwoFlippedBitsMakeUpForEachOther) {
  std::string bytes = Numbers(777);
  std::set<std::uint64_t> sums;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    sums.insert(HashOf(bytes));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
  EXPECT_EQ(sums.size(), bytes.size() * 8);
}

TEST(Hash, FindsEveryMissingEndAndDistinguishesZerosOfAnyLength) {
  const std::string zeros(3000, '\0');
  std::set<std::uint64_t> sums;
  for (std::size_t length = 0; length <= zeros.size(); ++length) sums.insert(HashOf({zeros.data(), length}));
  EXPECT_EQ(sums.size(), zeros.size() + 1);
}

TEST(Hash, FindsWordsAndBlocksThatChangedPlaces) {
  const std::string bytes = Numbers(4096);
  const std::uint64_t right = HashOf(bytes);
  for (const std::size_t size : {8U, 64U, 512U}) {
    for (std::size_t at = size; at + size <= bytes.size(); at += size) {
      std::string swapped = bytes;
      swapped.replace(0, size, bytes, at, size);
      swapped.replace(at, size, bytes, 0, size);
      if (swapped != bytes) {
        ASSERT_NE(HashOf(swapped), right) << size << " at " << at;
      }
    }
  }
}

TEST(Hash, DoesNotDependOnTheChunksThatTheDataComesIn) {
  const std::string bytes = Numbers(3000);
  const std::uint64_t right = HashOf(bytes);
  for (std::size_t chunk = 1; chunk < 600; ++chunk) {
    Hash hash;
    for (std::size_t at = 0; at < bytes.size(); at += chunk) {
      hash.Add(bytes.data() + at, std::min(chunk, bytes.size() - at));
      hash.Add(nullptr, 0);
    }
    ASSERT_EQ(hash.Sum(), right) << chunk;
    ASSERT_EQ(hash.Sum(), right) << "asking twice";
  }
}

TEST(Hash, GoesOnFromACopy) {
  const std::string bytes = Numbers(1500);
  Hash first;
  first.Add(bytes.data(), 700);
  Hash second = first;
  const std::uint64_t so_far = HashOf({bytes.data(), 700});
  second.Add(bytes.data() + 700, 800);
  EXPECT_EQ(first.Sum(), so_far);
  EXPECT_EQ(second.Sum(), HashOf(bytes));
  first = second;
  EXPECT_EQ(first.Sum(), HashOf(bytes));
}

TEST(Hash, IsReadBackFromItsTextAndFromNothingElse) {
  EXPECT_EQ(ParseHash(FormatHash(0x0123456789abcdef)), 0x0123456789abcdefU);
  EXPECT_EQ(ParseHash("0123456789abcdeF"), std::nullopt);
  EXPECT_EQ(ParseHash("123456789abcdef"), std::nullopt);
  EXPECT_EQ(ParseHash("00123456789abcdef"), std::nullopt);
  EXPECT_EQ(ParseHash("-123456789abcdef"), std::nullopt);
}

}  // namespace
}  // namespace fulldeck::base
