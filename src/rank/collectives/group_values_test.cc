// The numbers: every operation, type and reduction, at odd sizes and at the sizes where the algorithm changes, against
// a reference that shares no code with the engine. Ranks are threads and chunks are small, so that a call has many of
// them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "collectives/group.h"
#include "collectives/kernels/reduce_kernel.h"
#include "collectives/memory/chunks.h"
#include "collectives/testing/problem.h"
#include "collectives/testing/ranks.h"

namespace fulldeck::collectives {
namespace {

using testing::Bytes;
using testing::Draws;
using testing::kDatatypes;
using testing::kReductions;
using testing::MakeProblem;
using testing::Placement;
using testing::Problem;
using testing::RankThreads;
using testing::Solve;

constexpr std::uint64_t kChunkBytes = 4096;

std::uint64_t DirectBytes(int size) {
  return std::min<std::uint64_t>(512, kChunkBytes / static_cast<std::uint64_t>(size));
}

// FULLDECK_LONG_TESTS=1: nothing is skipped.
const bool kLong = std::getenv("FULLDECK_LONG_TESTS") != nullptr;

GroupOptions SmallChunks(int size) {
  GroupOptions options;
  options.chunk_bytes = kChunkBytes;
  options.direct_bytes = DirectBytes(size);
  options.timeout = std::chrono::minutes(4);
  return options;
}

// Sizes around `seams` (in elements), where a call may take another path, and odd sizes with several chunks.
std::vector<std::uint64_t> Sizes(std::initializer_list<std::uint64_t> seams, std::uint64_t chunk) {
  std::set<std::uint64_t> sizes = {0, 1, 3, 17, 1000, 3 * chunk + 5, 6 * chunk - 1};
  for (const std::uint64_t seam : seams) sizes.insert({seam - 1, seam, seam + 1});
  return {sizes.begin(), sizes.end()};
}

std::vector<std::uint64_t> SizesOf(Operation operation, Datatype datatype, int size) {
  const std::uint64_t chunk = kChunkBytes / BytesOf(datatype);
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
      return Sizes({DirectBytes(size) / BytesOf(datatype), chunk}, chunk);
    case Operation::kReduceScatter:
    case Operation::kScatter:
    case Operation::kAllToAll: {
      const std::uint64_t part =
          kChunkBytes / static_cast<std::uint64_t>(size) / kRangeAlignment * kRangeAlignment / BytesOf(datatype);
      return Sizes({part, 2 * part}, part);
    }
    default:
      return Sizes({chunk, 2 * chunk}, chunk);
  }
}

// The possible placements of the ranks' buffers, each used in turn.
constexpr int kPatterns = 11;
Placement PlacementOf(int pattern, int rank, std::uint64_t call) {
  using Kind = Placement::Kind;
  const bool odd = rank % 2 == 1;
  switch (pattern) {
    case 0:
      return {};
    case 1:
      return {.in_place = true};
    case 2:
      return {.misaligned = static_cast<unsigned>(1 + 2 * rank)};
    case 3:
      return {Kind::kShared, Kind::kShared, true};
    case 4:
      return {odd ? Kind::kShared : Kind::kHost, Kind::kHost, true};
    case 5:
      return {Kind::kShared, Kind::kShared, false, static_cast<unsigned>(rank)};
    case 6:
      return {Kind::kCard, Kind::kCard};
    case 7:
      return {Kind::kCard, Kind::kCard, true};
    case 8:
      return {odd ? Kind::kCard : Kind::kHost, odd ? Kind::kHost : Kind::kCard};
    case 9:
      return {Kind::kShared, Kind::kShared, true, static_cast<unsigned>(3 * rank)};
    default: {
      Draws draws(call * 1000 + static_cast<std::uint64_t>(rank));
      return {static_cast<Kind>(draws.Below(3)), static_cast<Kind>(draws.Below(3)), draws.OneIn(2),
              static_cast<unsigned>(draws.Below(17))};
    }
  }
}

// Makes the calls in a row, each with another pattern. Returns the errors.
std::string SolveAll(RankThreads& ranks, const std::vector<Problem>& problems, std::uint64_t first_call) {
  return ranks.Run([&](Group& group) {
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::uint64_t call = first_call + i;
      const int pattern = static_cast<int>(call % kPatterns);
      std::string wrong = Solve(group, problems[i], PlacementOf(pattern, group.rank(), call));
      if (!wrong.empty()) return "call " + std::to_string(call) + ", pattern " + std::to_string(pattern) + ": " + wrong;
    }
    return std::string();
  });
}

class GroupValues : public ::testing::TestWithParam<int> {};
std::string NameOfRanks(const ::testing::TestParamInfo<int>& given) {
  return "On" + std::to_string(given.param);
}
INSTANTIATE_TEST_SUITE_P(Ranks, GroupValues, ::testing::Range(1, 10), NameOfRanks);

std::string TryReductions(int size, Operation operation, GroupOptions options) {
  RankThreads ranks(size, std::move(options));
  std::uint64_t call = 0;
  for (const Datatype datatype : kDatatypes) {
    std::vector<Problem> problems;
    int root = 0;
    for (const Reduction reduction : kReductions) {
      if (!CanReduce(datatype, reduction)) continue;
      for (const std::uint64_t count : SizesOf(operation, datatype, size)) {
        // Every second combination, with the others at the next reduction: each size is tested with each type and with
        // each reduction.
        if (root++ % 2 == static_cast<int>(reduction) % 2 && !kLong) continue;
        problems.push_back(
            MakeProblem(operation, datatype, reduction, root % size, count, size, call + problems.size()));
      }
    }
    if (std::string wrong = SolveAll(ranks, problems, call); !wrong.empty()) return wrong;
    call += problems.size();
  }
  return "";
}

TEST_P(GroupValues, AllReduceGivesTheReferenceOnEveryRank) {
  EXPECT_EQ(TryReductions(GetParam(), Operation::kAllReduce, SmallChunks(GetParam())), "");
}

TEST_P(GroupValues, ReduceGivesTheReferenceOnItsRoot) {
  EXPECT_EQ(TryReductions(GetParam(), Operation::kReduce, SmallChunks(GetParam())), "");
}

TEST_P(GroupValues, ReduceScatterGivesEachRankItsPartOfTheReference) {
  EXPECT_EQ(TryReductions(GetParam(), Operation::kReduceScatter, SmallChunks(GetParam())), "");
}

TEST_P(GroupValues, MovedDataArrivesAsItWas) {
  const int size = GetParam();
  RankThreads ranks(size, SmallChunks(size));
  std::uint64_t call = 0;
  for (const Operation operation : {Operation::kBroadcast, Operation::kAllGather, Operation::kGather,
                                    Operation::kScatter, Operation::kAllToAll, Operation::kBarrier}) {
    std::vector<Problem> problems;
    int root = 0;
    // Moved data has no type: one type of each length suffices.
    for (const Datatype datatype : {Datatype::kBool, Datatype::kFloat16, Datatype::kInt32, Datatype::kFloat64}) {
      for (const std::uint64_t count : SizesOf(operation, datatype, size)) {
        // Every root at every size would take most of the time of this test; each is used many times.
        for (int turn = 0; turn < 2; ++turn) {
          problems.push_back(
              MakeProblem(operation, datatype, Reduction::kNone, root++ % size, count, size, call + problems.size()));
        }
      }
    }
    ASSERT_EQ(SolveAll(ranks, problems, call), "") << NameOf(operation);
    call += problems.size();
  }
}

// Tests the reference itself.
TEST(GroupValuesReference, RoundsToTheNearestOfAll16BitFloats) {
  for (const testing::Format16 format : {testing::kFloat16, testing::kBfloat16}) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto narrow = static_cast<std::uint16_t>(bits);
      const double value = testing::ValueOf(narrow, format);
      if (std::isnan(value)) continue;
      ASSERT_EQ(testing::Round16(value, format), narrow);
      // Half-way to the next larger number: the even one of the two.
      const double next = testing::ValueOf(static_cast<std::uint16_t>(bits + 1), format);
      if ((bits & 0x7fff) == 0x7fff || std::isinf(value) || !std::isfinite(next)) continue;
      ASSERT_EQ(testing::Round16((value + next) / 2, format), narrow + (bits & 1));
      ASSERT_EQ(testing::Round16(std::nextafter((value + next) / 2, value), format), narrow);
      ASSERT_EQ(testing::Round16(std::nextafter((value + next) / 2, next), format), narrow + 1);
    }
  }
  EXPECT_EQ(testing::Round16(65519, testing::kFloat16), 0x7bff);
  EXPECT_EQ(testing::Round16(65520, testing::kFloat16), 0x7c00);
  EXPECT_EQ(testing::ValueOf(0x3555, testing::kFloat16), 0.333251953125);
  EXPECT_EQ(testing::ValueOf(0x3f80, testing::kBfloat16), 1);
}

// Sums of floats are as close to those in higher precision as rounding allows.
TEST(GroupValuesReference, SumsOfFloatsAreWithinRoundingOfTheExactOnes) {
  for (const Datatype datatype : {Datatype::kFloat16, Datatype::kBfloat16, Datatype::kFloat32, Datatype::kFloat64}) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kAvg}) {
      for (const int size : {2, 9}) {
        const Problem problem = MakeProblem(Operation::kAllReduce, datatype, reduction, 0, 5000, size, 77);
        const double error = testing::ErrorInBounds(problem.inputs, problem.outputs[0], datatype, reduction);
        EXPECT_LE(error, 1) << NameOf(datatype) << ' ' << NameOf(reduction) << " of " << size;
        EXPECT_GT(error, 0.05) << "a bound that nothing comes near to shows nothing";
      }
    }
  }
}

// ---- the same bits on every path ----

using Results = std::vector<Bytes>;  // of several calls, on rank 0

// Runs all_reduce of the same inputs (floats with NaN, infinities and subnormals among them) with these options and
// returns the bits, which are equal on all ranks. `cut`: the data is split into calls of at most this many elements.
Results BitsOf(GroupOptions options, int size, Placement placement, std::uint64_t cut = ~std::uint64_t{0}) {
  struct Case {
    Datatype datatype;
    Reduction reduction;
    std::vector<Bytes> inputs;
  };
  constexpr std::uint64_t kCount = 11000;
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  for (const Datatype datatype : kDatatypes) {
    for (const Reduction reduction : kReductions) {
      if (!CanReduce(datatype, reduction)) continue;
      Case one{datatype, reduction, {}};
      for (int rank = 0; rank < size; ++rank) {
        Bytes input = testing::RandomElements(datatype, kCount, ++seed);
        // Random bits in every 16th element: in floats, they include NaN and infinity.
        for (std::uint64_t i = 0; i < kCount; i += 16) {
          const std::uint64_t random = testing::Mix(seed + i);
          std::memcpy(input.data() + i * BytesOf(datatype), &random, BytesOf(datatype));
        }
        one.inputs.push_back(std::move(input));
      }
      cases.push_back(std::move(one));
    }
  }
  RankThreads ranks(size, std::move(options));
  std::vector<Results> by_rank(static_cast<std::size_t>(size));
  const std::string wrong = ranks.Run([&](Group& group) {
    Results& results = by_rank[static_cast<std::size_t>(group.rank())];
    for (const Case& one : cases) {
      testing::Space space(group, placement.input, one.inputs[static_cast<std::size_t>(group.rank())],
                           placement.misaligned);
      for (std::uint64_t begin = 0; begin < kCount; begin += cut) {
        const std::uint64_t count = std::min(cut, kCount - begin);
        const Buffer buffer = space.Stretch(begin * BytesOf(one.datatype), count * BytesOf(one.datatype));
        const Status status = group.AllReduce(buffer, buffer, count, one.datatype, one.reduction);
        if (!status.ok()) return status.text();
        if (cut > kCount) break;
      }
      results.push_back(space.Contents());
    }
    return std::string();
  });
  EXPECT_EQ(wrong, "");
  for (int rank = 1; rank < size; ++rank) {
    EXPECT_EQ(by_rank[static_cast<std::size_t>(rank)], by_rank[0]) << "rank " << rank << " has other bits than rank 0";
  }
  return by_rank[0];
}

TEST(GroupBits, AreTheSameInEveryRunWithEveryChunkSizeAndHoweverTheDataIsCutIntoCalls) {
  constexpr int kRanks = 5;
  const Results once = BitsOf(SmallChunks(kRanks), kRanks, {});
  EXPECT_EQ(BitsOf(SmallChunks(kRanks), kRanks, {}), once) << "another run";
  for (const std::uint64_t chunk : {4096, 12288, 1 << 20}) {
    GroupOptions options = SmallChunks(kRanks);
    options.chunk_bytes = chunk;
    options.direct_bytes = chunk == 12288 ? 64 : 0;
    EXPECT_EQ(BitsOf(options, kRanks, {}), once) << "pieces of " << chunk;
  }
  for (const std::uint64_t cut : {7, 129, 4999}) {
    EXPECT_EQ(BitsOf(SmallChunks(kRanks), kRanks, {}, cut), once) << "calls of " << cut << " elements";
  }
  using Kind = Placement::Kind;
  EXPECT_EQ(BitsOf(SmallChunks(kRanks), kRanks, {Kind::kShared, Kind::kShared, true}), once) << "in shared memory";
  EXPECT_EQ(BitsOf(SmallChunks(kRanks), kRanks, {Kind::kCard, Kind::kCard, true}), once) << "on cards";
  EXPECT_EQ(BitsOf(SmallChunks(kRanks), kRanks, {.misaligned = 5}), once) << "misaligned";
}

TEST(GroupBits, AreTheSameWithEveryKernel) {
  constexpr int kRanks = 3;
  const Results best = BitsOf(SmallChunks(kRanks), kRanks, {});
  for (const InstructionSet set :
       {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512, InstructionSet::kNeon}) {
    if (!CanRun(set)) continue;
    ASSERT_EQ(setenv("FULLDECK_COLLECTIVES_KERNEL", NameOf(set), 1), 0);
    EXPECT_EQ(BitsOf(SmallChunks(kRanks), kRanks, {.misaligned = 3}), best) << NameOf(set);
  }
  unsetenv("FULLDECK_COLLECTIVES_KERNEL");
}

// ---- two levels ----

struct Topology {
  const char* name;
  std::vector<int> nodes;
};
class GroupLevels : public ::testing::TestWithParam<Topology> {};
std::string NameOfTopology(const ::testing::TestParamInfo<Topology>& given) {
  return std::string("Of") + given.param.name;
}
INSTANTIATE_TEST_SUITE_P(Nodes, GroupLevels,
                         ::testing::Values(Topology{"2x4", {0, 0, 0, 0, 1, 1, 1, 1}},
                                           Topology{"3and5", {0, 0, 0, 1, 1, 1, 1, 1}},
                                           Topology{"1and2and3", {5, 3, 3, 1, 1, 1}},
                                           Topology{"FourNodes", {0, 0, 1, 1, 2, 3, 3}},
                                           Topology{"7and1", {0, 0, 0, 0, 0, 0, 0, 1}}),
                         NameOfTopology);

TEST_P(GroupLevels, ReductionsGiveTheReference) {
  const int size = static_cast<int>(GetParam().nodes.size());
  GroupOptions options = SmallChunks(size);
  options.nodes = GetParam().nodes;
  {
    RankThreads ranks(size, options);
    ASSERT_EQ(ranks.failure(), "");
    EXPECT_NE(ranks.group(0).Describe().find("NUMA nodes"), std::string::npos) << ranks.group(0).Describe();
  }
  EXPECT_EQ(TryReductions(size, Operation::kAllReduce, options), "");
  EXPECT_EQ(TryReductions(size, Operation::kReduce, options), "");
}

TEST_P(GroupLevels, GiveTheBitsOfTheFlatWay) {
  const int size = static_cast<int>(GetParam().nodes.size());
  GroupOptions flat = SmallChunks(size);
  flat.nodes.assign(static_cast<std::size_t>(size), 0);
  GroupOptions levels = flat;
  levels.nodes = GetParam().nodes;
  using Kind = Placement::Kind;
  const Results expected = BitsOf(flat, size, {});
  EXPECT_EQ(BitsOf(levels, size, {}), expected);
  EXPECT_EQ(BitsOf(levels, size, {Kind::kCard, Kind::kCard, true}), expected) << "on cards";
}

TEST(GroupLevelsChoice, AreLeftAloneWhereTheRanksOfANodeAreNotAdjacent) {
  GroupOptions options = SmallChunks(4);
  options.nodes = {0, 1, 0, 1};
  RankThreads ranks(4, options);
  ASSERT_EQ(ranks.failure(), "");
  EXPECT_NE(ranks.group(0).Describe().find("one level"), std::string::npos) << ranks.group(0).Describe();
}

}  // namespace
}  // namespace fulldeck::collectives
