#include "collectives/call.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "collectives/testing/problem.h"

namespace fulldeck::collectives {
namespace {

constexpr Operation kOperations[] = {Operation::kBarrier,   Operation::kAllReduce, Operation::kReduce,
                                     Operation::kBroadcast, Operation::kAllGather, Operation::kReduceScatter,
                                     Operation::kGather,    Operation::kScatter,   Operation::kAllToAll};

TEST(Call, IsTheSameAfterTheWayThroughAWord) {
  for (const Operation operation : kOperations) {
    for (const Datatype datatype : testing::kDatatypes) {
      for (const int root : {-1, 0, 255}) {
        const Call call{operation, datatype, Reduction::kXor, root, 1234567890123};
        EXPECT_EQ(Unpack(Pack(call), call.count), call);
      }
    }
  }
}

// A word from memory that others write to may contain anything.
TEST(Call, MakesSomethingPrintableOfAnyBits) {
  testing::Draws draws(1);
  for (int i = 0; i < 10000; ++i) {
    const Call call = Unpack(draws.Next(), draws.Next());
    EXPECT_STRNE(NameOf(call.operation), "unknown");
    EXPECT_FALSE(Describe(call).empty());
    EXPECT_NE(call.Fingerprint(), 0u);
  }
  EXPECT_EQ(Unpack(0, 0).operation, Operation::kBarrier);
}

TEST(Call, HasAnotherFingerprintWhenAnythingOfItDiffers) {
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  for (const Operation operation : kOperations) {
    for (const Datatype datatype : testing::kDatatypes) {
      for (const Reduction reduction : testing::kReductions) {
        for (const int root : {-1, 0, 1}) {
          for (const std::uint64_t count : {0, 1, 2}) {
            seen.insert(Call{operation, datatype, reduction, root, count}.Fingerprint());
            ++made;
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(Call, IsDescribedAsText) {
  const Call sum{Operation::kAllReduce, Datatype::kFloat32, Reduction::kSum, -1, 1024};
  const Call from_2{Operation::kBroadcast, Datatype::kInt64, Reduction::kNone, 2, 3};
  const Call barrier{};
  const Call exchange{Operation::kAllToAll, Datatype::kUint8, Reduction::kNone, -1, 0};
  EXPECT_EQ(Describe(sum), "all_reduce(sum, float32 × 1024)");
  EXPECT_EQ(Describe(from_2), "broadcast(int64 × 3, root 2)");
  EXPECT_EQ(Describe(barrier), "barrier()");
  EXPECT_EQ(Describe(exchange), "all_to_all(uint8)");
  EXPECT_EQ(DescribeCalls({sum, sum, sum, barrier, from_2, sum}),
            "ranks 0–2, 5: all_reduce(sum, float32 × 1024); rank 3: barrier(); rank 4: broadcast(int64 × 3, root 2)");
  EXPECT_EQ(base::FormatRanks({3}), "rank 3");
  EXPECT_EQ(base::FormatRanks({0, 1}), "ranks 0, 1");
  EXPECT_EQ(base::FormatRanks({0, 1, 2, 7, 9, 10}), "ranks 0–2, 7, 9, 10");
}

TEST(Call, TheOddOneIsKnownByMajorityAlone) {
  const Call sum{Operation::kAllReduce, Datatype::kFloat32, Reduction::kSum, -1, 3};
  const Call more{Operation::kAllReduce, Datatype::kFloat32, Reduction::kSum, -1, 4};
  const Call barrier{};
  EXPECT_EQ(FindOutlier({sum, sum, more}), 2);
  EXPECT_EQ(FindOutlier({barrier, sum, sum}), 0);
  EXPECT_EQ(FindOutlier({sum, barrier, sum, more, sum}), 1);
  EXPECT_EQ(FindOutlier({sum, more}), -1);
  EXPECT_EQ(FindOutlier({sum, more, sum, more}), -1);
  EXPECT_EQ(FindOutlier({sum, more, barrier}), -1);
  EXPECT_EQ(FindOutlier({sum, sum}), -1);
}

}  // namespace
}  // namespace fulldeck::collectives
