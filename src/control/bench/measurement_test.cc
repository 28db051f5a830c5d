#include "bench/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "bench/collectives_bench.h"

namespace fulldeck::bench {
namespace {

using ::testing::HasSubstr;

// A group of one rank, in which every result equals the input; tests can make it misbehave.
class LonelyLibrary final : public Library {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  std::string About() const override { return "alone"; }
  std::optional<std::string> WhyNot(const Operation&, const Element&, std::uint64_t) const override { return why_not; }
  base::Result<void> Barrier() override {
    ++barriers;
    return {};
  }
  base::Result<std::int64_t> BroadcastFromRankZero(std::int64_t value) override { return value; }
  base::Result<void> Do(const Call& call) override {
    if (calls++ == fails_at) return base::Error{"the peer died"};
    if (call.input != call.output && call.output != nullptr && call.input != nullptr && calls - 1 != forgets_at) {
      std::memcpy(call.output, call.input, call.count * call.element->bytes);
    }
    return {};
  }
  base::Result<std::byte*> AllocateShared(std::uint64_t bytes) override {
    ++shared;
    return static_cast<std::byte*>(std::malloc(bytes));
  }
  void FreeShared(std::byte* memory) override {
    --shared;
    std::free(memory);
  }

  std::optional<std::string> why_not;
  int fails_at = -1;
  int forgets_at = -1;  // leaves the data of the previous call
  int calls = 0;
  int barriers = 0;
  int shared = 0;
};

Cell CellOf(const char* operation) {
  Cell cell;
  cell.operation = FindOperation(operation);
  cell.element = FindElement("float32");
  cell.bytes = 40000;
  cell.seconds = 0.01;
  cell.max_calls = 50;
  return cell;
}

TEST(Measurement, EveryOperationIsTimedAndCheckedBetweenTwoBarriers) {
  for (const std::string& name : OperationNames()) {
    if (name == "send_receive") continue;  // there is no partner
    LonelyLibrary library;
    const Measurement result = Measure(library, CellOf(name.c_str()));
    EXPECT_FALSE(result.wrong) << name << ": " << *result.wrong;
    EXPECT_FALSE(result.failed) << name;
    EXPECT_GE(result.times_ns.size(), 3u) << name;
    EXPECT_LE(result.times_ns.size(), 50u) << name;
    EXPECT_EQ(library.barriers, 2 * library.calls);
    EXPECT_EQ(static_cast<std::size_t>(library.calls), result.times_ns.size() + 2) << name;
    EXPECT_EQ(result.checked, name == "barrier" ? 0 : 10000u * static_cast<unsigned>(library.calls)) << name;
  }
}

TEST(Measurement, AResultThatWasLeftFromTheCallBeforeIsAWrongValue) {
  LonelyLibrary library;
  library.forgets_at = 3;
  const Measurement result = Measure(library, CellOf("all_gather"));
  ASSERT_TRUE(result.wrong);
  EXPECT_THAT(*result.wrong, HasSubstr("rank 0: element "));
  EXPECT_THAT(*result.wrong, HasSubstr("in call 3 of all_gather"));
}

TEST(Measurement, SpoilingForTestsIsFound) {
  LonelyLibrary library;
  Cell cell = CellOf("all_reduce");
  cell.spoil = true;
  EXPECT_TRUE(Measure(library, cell).wrong);
}

TEST(Measurement, AFailedCallIsReportedWithItsOwnMessage) {
  LonelyLibrary library;
  library.fails_at = 4;
  const Measurement result = Measure(library, CellOf("broadcast"));
  ASSERT_TRUE(result.failed);
  EXPECT_EQ(*result.failed, "broadcast number 4 failed: the peer died");
}

TEST(Measurement, WhatALibraryCannotDoIsNotTried) {
  LonelyLibrary library;
  library.why_not = "MPI has no bfloat16";
  EXPECT_EQ(Measure(library, CellOf("all_reduce")).cannot, "MPI has no bfloat16");
  EXPECT_EQ(library.calls, 0);
}

TEST(Measurement, SharedBuffersAreTheLibrarysAndAreGivenBack) {
  LonelyLibrary library;
  Cell cell = CellOf("all_reduce");
  cell.shared = true;
  EXPECT_FALSE(Measure(library, cell).wrong);
  EXPECT_EQ(library.shared, 0);
}

TEST(NextBatch, MakesTheLeastNumberHoweverSlowAndNeverMoreThanTheMost) {
  Cell cell = CellOf("all_reduce");
  cell.seconds = 1;
  cell.min_calls = 3;
  cell.max_calls = 100;
  EXPECT_EQ(NextBatch(cell, 0, 0), 3);
  EXPECT_EQ(NextBatch(cell, 2, 50), 1);
  EXPECT_EQ(NextBatch(cell, 3, 50), 0);
  EXPECT_EQ(NextBatch(cell, 3, 0.9), 0) << "one more would take longer than what is left";
  EXPECT_EQ(NextBatch(cell, 3, 0.03), 48) << "half of what fits into the 0.97 s that are left";
  EXPECT_EQ(NextBatch(cell, 3, 0), 97);
  EXPECT_EQ(NextBatch(cell, 100, 0.1), 0);
}

TEST(Figures, AreThoseOfTheSlowestRankOfEachCall) {
  const auto slowest = SlowestOf({{10, 50, 30}, {20, 10, 30}, {15, 15, 90}});
  EXPECT_EQ(slowest, (std::vector<std::uint64_t>{20, 50, 90}));
  const Figures figures = FiguresOf(slowest);
  EXPECT_EQ(figures.calls, 3);
  EXPECT_DOUBLE_EQ(figures.median, 50e-9);
  EXPECT_DOUBLE_EQ(figures.least, 20e-9);
  EXPECT_DOUBLE_EQ(figures.p95, 90e-9);
  EXPECT_DOUBLE_EQ(FiguresOf({10, 20, 30, 50}).median, 25e-9);
  EXPECT_EQ(FiguresOf({}).calls, 0);
}

TEST(Figures, TheBoundIsThatOfTheBytesThatMustMove) {
  const Operation& all_reduce = *FindOperation("all_reduce");
  EXPECT_DOUBLE_EQ(*MemoryBound(Contender::kFulldeck, all_reduce, 8, 1000, 38e9), 1e-6);
  EXPECT_DOUBLE_EQ(*MemoryBound(Contender::kFulldeckShared, all_reduce, 8, 1000, 16e9), 1e-6);
  EXPECT_FALSE(MemoryBound(Contender::kGloo, all_reduce, 8, 1000, 16e9));
  EXPECT_FALSE(MemoryBound(Contender::kFulldeck, *FindOperation("broadcast"), 8, 1000, 16e9));
  EXPECT_FALSE(MemoryBound(Contender::kFulldeck, all_reduce, 8, 1000, 0));
}

BenchPlan Plan() {
  BenchPlan plan;
  plan.ranks = {2, 8};
  plan.sizes = {std::uint64_t{1} << 30};
  plan.operations = {FindOperation("all_reduce")};
  plan.element = FindElement("float32");
  plan.contenders = {Contender::kFulldeck};
  return plan;
}

TEST(CheckPlan, RefusesMoreMemoryThanThereIsWithTheNumbers) {
  const BenchPlan plan = Plan();
  EXPECT_TRUE(CheckPlan(plan, std::uint64_t{9} << 30));
  EXPECT_TRUE(CheckPlan(plan, std::nullopt));
  const auto refused = CheckPlan(plan, std::uint64_t{4} << 30);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("all_reduce of 1 GiB with 8 ranks needs about 8.2 GiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("4 GiB are free"));
}

TEST(CheckPlan, RefusesImpossibleNumbers) {
  BenchPlan plan = Plan();
  plan.ranks = {257};
  EXPECT_THAT(CheckPlan(plan, std::nullopt).error().message, HasSubstr("--nproc 257: a group has 1 to 256 ranks"));
  plan.ranks = {0};
  EXPECT_FALSE(CheckPlan(plan, std::nullopt));
  plan = Plan();
  plan.sizes = {4097};
  EXPECT_THAT(CheckPlan(plan, std::nullopt).error().message, HasSubstr("4097 bytes are no whole number of float32"));
  plan.sizes = {0};
  EXPECT_FALSE(CheckPlan(plan, std::nullopt));
}

}  // namespace
}  // namespace fulldeck::bench
