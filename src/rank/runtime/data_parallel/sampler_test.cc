#include "fulldeck/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "fulldeck/random.h"

namespace fulldeck {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using Set = std::multiset<std::uint64_t>;

// The remaining global batches of the samplers' epoch, each assembled from all ranks.
std::vector<Set> Batches(std::vector<Sampler>& ranks) {
  std::vector<Set> batches;
  while (true) {
    Set together;
    std::uint64_t global_size = 0;
    bool over = false;
    for (Sampler& rank : ranks) {
      const auto batch = rank.Next();
      over = !batch;
      if (over) continue;
      together.insert(batch->indices.begin(), batch->indices.end());
      global_size = batch->global_size;
    }
    if (over) return batches;
    EXPECT_EQ(together.size(), global_size);
    batches.push_back(together);
  }
}

std::vector<Sampler> Ranks(int count, const SamplerOptions& options) {
  std::vector<Sampler> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.emplace_back(options, rank, count);
  return ranks;
}

Set Together(const std::vector<Set>& batches) {
  Set all;
  for (const Set& batch : batches) all.insert(batch.begin(), batch.end());
  return all;
}

TEST(Random, PhiloxGivesTheNumbersOfThePaper) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, AStreamIsItsNameAndNothingElse) {
  std::set<std::uint64_t> first;
  for (const std::uint64_t seed : {1ull, 2ull}) {
    for (const Purpose purpose : {Purpose::kAugmentation, Purpose::kDropout}) {
      for (const std::uint64_t epoch : {0ull, 1ull, 1ull << 40}) {
        for (std::uint64_t sample = 0; sample < 50; ++sample) {
          RandomStream one(seed, purpose, epoch, sample);
          RandomStream again(seed, purpose, epoch, sample);
          first.insert(one.Next64());
          again.Next64();
          for (int i = 0; i < 5; ++i) EXPECT_EQ(one.Next64(), again.Next64());
        }
      }
    }
  }
  EXPECT_EQ(first.size(), 2u * 2u * 3u * 50u);
}

TEST(Random, NumbersAreSpreadAsTheyShould) {
  RandomStream random(7, Purpose::kUser, 0, 0);
  std::map<std::uint64_t, int> dice;
  double sum = 0;
  double squares = 0;
  constexpr int kThrows = 60000;
  for (int i = 0; i < kThrows; ++i) {
    ++dice[random.Below(6)];
    const double normal = random.Normal();
    sum += normal;
    squares += normal * normal;
    const double uniform = random.Uniform(-2, 3);
    EXPECT_TRUE(uniform >= -2 && uniform < 3);
  }
  ASSERT_EQ(dice.size(), 6u);
  for (const auto& side : dice) EXPECT_NEAR(side.second, kThrows / 6, 450) << side.first;
  EXPECT_NEAR(sum / kThrows, 0, 0.02);
  EXPECT_NEAR(squares / kThrows, 1, 0.03);
  EXPECT_THROW(random.Below(0), Error);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(Random, AnOrderIsAPermutationOfAnySize) {
  for (const std::uint64_t size : {1ull, 2ull, 3ull, 4ull, 5ull, 16ull, 17ull, 1000ull, 4097ull}) {
    const RandomOrder order(size, 3, Purpose::kDataOrder, 9);
    std::vector<bool> seen(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t at = order.At(i);
      ASSERT_LT(at, size);
      EXPECT_FALSE(seen[at]) << size;
      seen[at] = true;
    }
    EXPECT_THROW(order.At(size), Error);
  }
  EXPECT_THROW(RandomOrder(0, 3, Purpose::kDataOrder, 9).At(0), Error);
  const RandomOrder large(~std::uint64_t{0}, 3, Purpose::kDataOrder, 9);
  EXPECT_NE(large.At(0), large.At(1));
}

TEST(Random, OrdersMixWell) {
  // Of 1000 positions about one maps to itself, and neighbors do not stay neighbors.
  int fixed = 0;
  int neighbors = 0;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    const RandomOrder order(1000, 11, Purpose::kDataOrder, epoch);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      fixed += order.At(i) == i ? 1 : 0;
      if (i > 0) neighbors += order.At(i) == order.At(i - 1) + 1 ? 1 : 0;
    }
  }
  EXPECT_NEAR(fixed, 50, 35);
  EXPECT_NEAR(neighbors, 50, 35);
}

TEST(Random, TheStreamOfASampleIsTheSameAtAnyNumberOfRanks) {
  const SamplerOptions options = {.size = 96, .global_batch = 24, .seed = 5};
  std::map<std::uint64_t, std::uint64_t> at_one;
  for (const int count : {1, 2, 8}) {
    std::map<std::uint64_t, std::uint64_t> drawn;
    for (Sampler& rank : Ranks(count, options)) {
      while (const auto batch = rank.Next()) {
        for (const std::uint64_t sample : batch->indices) {
          drawn[sample] = RandomStream(options.seed, Purpose::kAugmentation, rank.epoch(), sample).Next64();
        }
      }
    }
    EXPECT_EQ(drawn.size(), 96u);
    if (count == 1) at_one = drawn;
    EXPECT_EQ(drawn, at_one) << count;
  }
}

TEST(Sampler, GivesEverySampleExactlyOnceWhereTheLastBatchMayBeShort) {
  for (const int count : {1, 2, 3, 8}) {
    auto ranks = Ranks(count, {.size = 1000, .global_batch = 48, .seed = 1, .last = LastBatch::kShort});
    const auto batches = Batches(ranks);
    EXPECT_EQ(batches.size(), 21u);
    EXPECT_EQ(batches.back().size(), 1000u % 48);
    const Set all = Together(batches);
    EXPECT_EQ(all.size(), 1000u);
    EXPECT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), 1000u) << count;
  }
}

TEST(Sampler, DropsOrPadsTheLastBatchByRule) {
  auto dropping = Ranks(4, {.size = 100, .global_batch = 32, .seed = 1, .last = LastBatch::kDrop});
  EXPECT_EQ(dropping[0].batches_left(), 3u);
  EXPECT_EQ(Together(Batches(dropping)).size(), 96u);
  auto padding = Ranks(4, {.size = 100, .global_batch = 32, .seed = 1, .last = LastBatch::kPad});
  const auto padded = Batches(padding);
  ASSERT_EQ(padded.size(), 4u);
  const Set all = Together(padded);
  EXPECT_EQ(all.size(), 128u);
  EXPECT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), 100u);
  // Filled with the first samples of the epoch's order.
  for (const std::uint64_t sample : padded.front()) {
    EXPECT_TRUE(all.count(sample) == 2 || padded.front().size() > 28) << sample;
  }
  // A batch larger than the dataset wraps around.
  auto small = Ranks(2, {.size = 3, .global_batch = 8, .seed = 1, .last = LastBatch::kPad});
  EXPECT_EQ(Together(Batches(small)).size(), 8u);
}

TEST(Sampler, AGlobalBatchIsTheSameSetAtAnyNumberOfRanks) {
  const SamplerOptions options = {.size = 500, .global_batch = 24, .seed = 99};
  auto one = Ranks(1, options);
  const auto expected = Batches(one);
  for (const int count : {2, 3, 4, 8, 24}) {
    auto ranks = Ranks(count, options);
    EXPECT_EQ(Batches(ranks), expected) << count;
  }
}

TEST(Sampler, TheOrderIsNewInEveryEpochAndTheSameInEveryRun) {
  const SamplerOptions options = {.size = 64, .global_batch = 64, .seed = 4};
  const auto order_of = [&](std::uint64_t epoch) {
    Sampler sampler(options, 0, 1);
    sampler.BeginEpoch(epoch);
    return sampler.Next()->indices;
  };
  EXPECT_EQ(order_of(0), order_of(0));
  EXPECT_NE(order_of(0), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
  Sampler walked(options, 0, 1);
  while (walked.Next()) {
  }
  walked.NextEpoch();
  EXPECT_EQ(walked.epoch(), 1u);
  EXPECT_EQ(walked.Next()->indices, order_of(1));
  Sampler plain({.size = 5, .global_batch = 5, .shuffle = false}, 0, 1);
  EXPECT_THAT(plain.Next()->indices, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(Sampler, ResumesInTheMiddleOfAnEpochAtAnotherNumberOfRanksWithWhatWasLeft) {
  const SamplerOptions options = {.size = 1000, .global_batch = 40, .seed = 17, .last = LastBatch::kShort};
  auto whole = Ranks(1, options);
  whole[0].BeginEpoch(3);
  const auto expected = Batches(whole);

  auto before = Ranks(8, options);
  Set seen;
  std::string saved;
  for (Sampler& rank : before) {
    rank.BeginEpoch(3);
    for (int i = 0; i < 7; ++i) {
      const auto batch = rank.Next();
      seen.insert(batch->indices.begin(), batch->indices.end());
      saved = batch->after.ToText();
    }
    rank.Next();  // prefetched and not trained on
  }
  EXPECT_EQ(saved, "size=1000 seed=17 shuffle=1 epoch=3 consumed=280");
  for (const int count : {1, 2, 5}) {
    // The seed of the options no longer matters.
    auto after = Ranks(count, {.size = 1000, .global_batch = 40, .seed = 1, .last = LastBatch::kShort});
    for (Sampler& rank : after) rank.Restore(SamplerState::FromText(saved));
    EXPECT_EQ(after[0].epoch(), 3u);
    const auto rest = Batches(after);
    EXPECT_EQ(rest, (std::vector<Set>(expected.begin() + 7, expected.end()))) << count;
    Set all = Together(rest);
    all.insert(seen.begin(), seen.end());
    EXPECT_EQ(all.size(), 1000u);
    EXPECT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), 1000u);
  }
  // Another batch size: the same samples remain.
  auto smaller = Ranks(2, {.size = 1000, .global_batch = 16, .last = LastBatch::kShort});
  for (Sampler& rank : smaller) rank.Restore(SamplerState::FromText(saved));
  EXPECT_EQ(Together(Batches(smaller)), Together(std::vector<Set>(expected.begin() + 7, expected.end())));
}

TEST(Sampler, RefusesWhatCannotBe) {
  const auto refusal = [](const SamplerOptions& options, int rank, int count, const char* part) {
    EXPECT_THAT([&] { Sampler(options, rank, count); }, ThrowsMessage<Error>(HasSubstr(part)));
  };
  refusal({.size = 0, .global_batch = 8}, 0, 1, "its size is 0");
  refusal({.size = 10, .global_batch = 0}, 0, 1, "global batch of 0");
  refusal({.size = 100, .global_batch = 30}, 0, 8, "30 samples cannot be shared evenly by 8 ranks");
  refusal({.size = 10, .global_batch = 16}, 0, 2, "less than the global batch of 16");
  refusal({.size = 10, .global_batch = 2}, 2, 2, "rank 2 of 2");
  refusal({.size = 10, .global_batch = 2}, -1, 2, "rank -1 of 2");
  Sampler sampler({.size = 10, .global_batch = 2}, 0, 2);
  EXPECT_THAT([&] { sampler.Restore({.size = 11}); },
              ThrowsMessage<Error>(HasSubstr("11 samples, and this one has 10")));
  EXPECT_THAT([&] { sampler.Restore({.size = 10, .consumed = 11}); },
              ThrowsMessage<Error>(HasSubstr("behind the end")));
}

TEST(Sampler, ReadsBackOnlyWhatItWrote) {
  const SamplerState state = {123, ~std::uint64_t{0}, false, 7, 100};
  EXPECT_EQ(SamplerState::FromText(state.ToText()), state);
  for (const char* bad :
       {"", "size=1", "size=10 seed=1 shuffle=1 epoch=0 consumed=11", "size=0 seed=1 shuffle=1 epoch=0 consumed=0",
        "size=10 seed=1 shuffle=2 epoch=0 consumed=1", "size=10 seed=-1 shuffle=1 epoch=0 consumed=1",
        "size=10 seed=1 shuffle=1 epoch=0 consumed=1 ", "seed=1 size=10 shuffle=1 epoch=0 consumed=1",
        "size=10 seed=1 shuffle=1 epoch=0 consumed", "size=99999999999999999999 seed=1 shuffle=1 epoch=0 consumed=1"}) {
    EXPECT_THAT([&] { SamplerState::FromText(bad); }, ThrowsMessage<Error>(HasSubstr("is no position"))) << bad;
  }
}

}  // namespace
}  // namespace fulldeck
