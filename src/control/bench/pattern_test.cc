#include "bench/pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/operation.h"

namespace fulldeck::bench {
namespace {

constexpr std::uint64_t kCount = 3 * Pattern::kPeriod + 17;

std::vector<std::byte> Written(Pattern& pattern, const Element& element, int rank, std::uint64_t call) {
  std::vector<std::byte> data(kCount * element.bytes);
  pattern.Write(data.data(), kCount, rank, 0, call);
  return data;
}

class EveryElement : public testing::TestWithParam<std::string> {
 protected:
  const Element& element() const { return *FindElement(GetParam()); }
};

// Some libraries round 16-bit floats after every step: partial sums must not need that.
TEST_P(EveryElement, SumsStayExactWithTheMostRanks) {
  for (const int ranks : {1, 2, 8, 256}) {
    Pattern pattern(element(), ranks);
    std::vector<double> sums(kCount, 0);
    double largest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto data = Written(pattern, element(), rank, 5);
      for (std::uint64_t i = 0; i < kCount; ++i) sums[i] += Decode(element(), data.data() + i * element().bytes);
    }
    for (const double sum : sums) largest = std::max(largest, sum);
    EXPECT_GT(largest, 0);
    EXPECT_LE(largest, static_cast<double>(element().exact_to));
    std::vector<std::byte> expected(kCount * element().bytes);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      Encode(element(), static_cast<std::uint64_t>(sums[i]), expected.data() + i * element().bytes);
    }
    EXPECT_FALSE(pattern.Check(expected.data(), kCount, Pattern::kSumOfAll, 0, 5)) << ranks << " ranks";
  }
}

TEST_P(EveryElement, WhatWasWrittenIsRightAndOneChangedByteIsFound) {
  Pattern pattern(element(), 4);
  auto data = Written(pattern, element(), 2, 9);
  EXPECT_FALSE(pattern.Check(data.data(), kCount, 2, 0, 9));
  for (const std::uint64_t place : {std::uint64_t{0}, Pattern::kPeriod, kCount - 1}) {
    auto spoiled = data;
    spoiled[place * element().bytes] ^= std::byte{0x40};
    const auto wrong = pattern.Check(spoiled.data(), kCount, 2, 0, 9);
    ASSERT_TRUE(wrong);
    EXPECT_EQ(wrong->element, place);
    EXPECT_NE(wrong->found, wrong->expected);
  }
}

TEST_P(EveryElement, StaleSwappedAndShiftedDataIsFound) {
  Pattern pattern(element(), 8);
  const auto data = Written(pattern, element(), 3, 7);
  EXPECT_TRUE(pattern.Check(data.data(), kCount, 3, 0, 8)) << "of the call before";
  EXPECT_TRUE(pattern.Check(data.data(), kCount, 4, 0, 7)) << "of another rank";
  EXPECT_TRUE(pattern.Check(data.data(), kCount, Pattern::kSumOfAll, 0, 7)) << "not reduced";
  for (const std::uint64_t shift : {1, 1024, 4096, 65536, 1 << 20}) {
    EXPECT_TRUE(pattern.Check(data.data(), kCount, 3, shift, 7)) << "moved by " << shift;
  }
}

TEST_P(EveryElement, ARangeOfTheNumbersEqualsTheSameRangeOfTheWhole) {
  Pattern pattern(element(), 3);
  const auto data = Written(pattern, element(), 1, 4);
  constexpr std::uint64_t kFirst = Pattern::kPeriod - 5;
  EXPECT_FALSE(pattern.Check(data.data() + kFirst * element().bytes, kCount - kFirst, 1, kFirst, 4));
}

INSTANTIATE_TEST_SUITE_P(Bench, EveryElement, testing::ValuesIn(ElementNames()),
                         [](const auto& name) { return name.param; });

TEST(Element, HalvesAreThoseOfTheStandard) {
  const Element& half = *FindElement("float16");
  std::byte two[2];
  Encode(half, 1, two);
  EXPECT_EQ(static_cast<int>(two[0]) | static_cast<int>(two[1]) << 8, 0x3c00);
  Encode(half, 2047, two);
  EXPECT_EQ(static_cast<int>(two[0]) | static_cast<int>(two[1]) << 8, 0x67ff);
  for (std::uint64_t value = 0; value <= half.exact_to; ++value) {
    Encode(half, value, two);
    ASSERT_EQ(Decode(half, two), static_cast<double>(value));
  }
  EXPECT_EQ(FindElement("float23"), nullptr);
}

TEST(Operation, BuffersOfChunksHoldOneChunkForEachRank) {
  const Element& element = *FindElement("float32");
  const Operation& gather = *FindOperation("gather");
  // 25 elements for 4 ranks: chunks of 7.
  EXPECT_EQ(ShapeOf(gather, element, 100, 0, 4).output_count, 28u);
  EXPECT_EQ(ShapeOf(gather, element, 100, 1, 4).output_count, 0u);
  EXPECT_EQ(ShapeOf(gather, element, 100, 1, 4).input_count, 7u);
  EXPECT_EQ(BytesOfAllBuffers(gather, element, 100, 4), (28u + 4 * 7) * 4);
  EXPECT_EQ(BytesOfAllBuffers(*FindOperation("all_reduce"), element, 100, 4), 400u);
  EXPECT_EQ(BytesOfAllBuffers(*FindOperation("barrier"), element, 100, 4), 0u);
}

TEST(Operation, TheLastOfAnOddNumberHasNobodyToSendTo) {
  EXPECT_EQ(PartnerOf(0, 3), 1);
  EXPECT_EQ(PartnerOf(1, 3), 0);
  EXPECT_EQ(PartnerOf(2, 3), -1);
  EXPECT_EQ(FindOperation("allreduce"), nullptr);
}

}  // namespace
}  // namespace fulldeck::bench
