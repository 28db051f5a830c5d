#include "doctor/collectives/collectives_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "fulldeck/collectives.h"
#include "temporary_folder.h"

namespace fulldeck::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- steps ----

TEST(ProofSteps, EveryCollectiveEveryRootEveryTypeAndReduction) {
  std::map<std::string, std::set<int>> roots;
  std::set<std::string> kinds;
  std::map<std::string, int> sized;
  for (const Step& step : StepsOf({8, {4096, 1 << 20}, true})) {
    if (step.sized) ++sized[step.operation->name];
    roots[step.operation->name].insert(step.root);
    if (step.operation->kind == bench::OperationKind::kAllReduce)
      kinds.insert(std::string(step.element->name) + " " + step.reduction);
  }
  EXPECT_EQ(roots.size(), 9u) << "all but send_receive, which is for pairs";
  for (const char* name : {"broadcast", "reduce", "gather", "scatter"}) EXPECT_EQ(roots[name].size(), 8u) << name;
  for (const char* kind : {"float32 sum", "float64 avg", "float16 max", "bfloat16 prod", "int8 min", "uint8 xor",
                           "int16 and", "int64 or", "bool or", "uint64 sum", "uint32 prod", "uint16 max"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
  EXPECT_EQ(kinds.size(), 88u);
  EXPECT_EQ(sized["all_reduce"], 2);
  EXPECT_EQ(sized["barrier"], 1);
}

TEST(ProofSteps, TorchGetsEveryTypeAndEveryReductionOnce) {
  std::set<std::string> types;
  std::set<std::string> reductions;
  int steps = 0;
  for (const Step& step : StepsOf({2, {}, false})) {
    if (step.operation->kind != bench::OperationKind::kAllReduce) continue;
    ++steps;
    types.insert(step.element->name);
    reductions.insert(step.reduction);
  }
  EXPECT_EQ(types.size(), 9u);
  EXPECT_EQ(reductions.size(), 8u);
  EXPECT_LE(steps, 17);
}

TEST(ProofSteps, LinesComeBackAsTheyWere) {
  for (const Step& step : StepsOf({3, {100}, true})) {
    const auto back = ReadStep(LineOf(step));
    ASSERT_TRUE(back) << LineOf(step);
    EXPECT_EQ(LineOf(*back), LineOf(step));
  }
  for (const char* line : {"", "7", "{}", "{\"number\": 1}"}) EXPECT_FALSE(ReadStep(line)) << line;
  StepAnswer answer;
  answer.times_ns = {3, 4};
  answer.checked = 5;
  answer.wrong = {6, 7, 8, 2};
  answer.failed = "it\x1b[2J";
  const auto back = ReadStepAnswer(LineOf(answer));
  ASSERT_TRUE(back);
  EXPECT_THAT(back->times_ns, ElementsAre(3u, 4u));
  EXPECT_EQ(back->wrong->source_rank, 2);
  EXPECT_EQ(back->failed->find('\x1b'), std::string::npos);
  for (const char* line : {"", "[]", "{\"times_ns\": 3}", "{\"wrong\": 1}", "{\"failed\": 1}"})
    EXPECT_FALSE(ReadStepAnswer(line)) << line;
}

TEST(ProofSteps, AreDescribedAsTheyAreCalled) {
  Step step = StepsOf({4, {}, true})[1];
  EXPECT_EQ(Describe(step), "all_reduce(sum, float32 × 4099)");
  EXPECT_THAT(Describe(PairStep(1, 0, 3, 8, 1)), HasSubstr("between ranks 0 and 3"));
}

// ---- values ----

TEST(ProofValues, AreExactInEveryTypeAndFoundWhenOneIsChanged) {
  for (const int ranks : {3, 8}) {
    for (const Step& step : StepsOf({ranks, {}, true})) {
      if (step.operation->kind != bench::OperationKind::kAllReduce) continue;
      StepValues values(step, ranks);
      const std::size_t bytes = 5000 * step.element->bytes;
      std::vector<std::byte> data(bytes);
      for (const int rank : {StepValues::kReduced, ranks - 1}) {
        values.Write(data.data(), 5000, rank, 17, 1);
        EXPECT_FALSE(values.Check(data.data(), 5000, rank, 17, 1)) << Describe(step);
        const std::size_t at = 4500;
        data[at * step.element->bytes] ^= std::byte{1};
        const auto wrong = values.Check(data.data(), 5000, rank, 17, 1);
        ASSERT_TRUE(wrong) << Describe(step);
        EXPECT_EQ(wrong->element, at);
        EXPECT_EQ(wrong->source_rank, rank);
      }
    }
  }
}

TEST(ProofValues, OfOneRankAreNotThoseOfAnotherCallOrPlace) {
  const Step step = StepsOf({8, {}, true})[1];
  StepValues values(step, 8);
  std::vector<std::byte> data(4099 * 4);
  values.Write(data.data(), 4099, 2, 0, 0);
  EXPECT_TRUE(values.Check(data.data(), 4099, 3, 0, 0));
  EXPECT_TRUE(values.Check(data.data(), 4099, 2, 0, 1));
  EXPECT_TRUE(values.Check(data.data(), 4099, 2, 4099, 0));
}

// ---- judgment ----

std::vector<PairFigures> AllPairs(int ranks, double speed) {
  std::vector<PairFigures> pairs;
  for (int from = 0; from < ranks; ++from) {
    for (int to = from + 1; to < ranks; ++to) pairs.push_back({from, to, 1e-6, speed});
  }
  return pairs;
}

TEST(ProofVerdicts, ASlowPairIsFoundAgainstTheMedian) {
  auto pairs = AllPairs(8, 6e9);
  EXPECT_THAT(FindSlowPairs(pairs).slow, IsEmpty());
  pairs[9].bytes_per_second = 1e9;
  pairs[3].bytes_per_second = 3e9;  // half is not less than a third
  const SlowPairs found = FindSlowPairs(pairs);
  ASSERT_EQ(found.slow.size(), 1u);
  EXPECT_EQ(found.slow[0].from, pairs[9].from);
  EXPECT_EQ(found.slow[0].to, pairs[9].to);
  EXPECT_EQ(found.median_bytes_per_second, 6e9);
  EXPECT_FALSE(found.rank);
}

TEST(ProofVerdicts, ARankWhosePairsAreAllSlowIsNamed) {
  auto pairs = AllPairs(8, 6e9);
  for (PairFigures& pair : pairs) {
    if (pair.from == 5 || pair.to == 5) pair.bytes_per_second = 1e9;
  }
  EXPECT_EQ(FindSlowPairs(pairs).rank, 5);
  EXPECT_THAT(FindSlowPairs(AllPairs(2, 1e9)).slow, IsEmpty()) << "one pair has nobody to be slower than";
}

RankProgress At(int step, RankProgress::Phase phase) {
  return {static_cast<std::uint64_t>(step) * 8 + phase, 1};
}

TEST(ProofVerdicts, WhoDidNotComeIsTheOneWhoIsNotInTheCall) {
  const std::vector<RankProgress> progress = {At(7, RankProgress::kInCall), At(7, RankProgress::kPreparing),
                                              At(7, RankProgress::kInCall)};
  const Absence absence = FindAbsent({0, 1, 2}, progress, 7, "SSS");
  EXPECT_THAT(absence.ranks, ElementsAre(1));
  EXPECT_FALSE(absence.inside);
}

TEST(ProofVerdicts, AmongThoseInTheCallItIsTheOneThatIsStopped) {
  const std::vector<RankProgress> progress(3, At(7, RankProgress::kInCall));
  const Absence stopped = FindAbsent({0, 1, 2}, progress, 7, "STS");
  EXPECT_THAT(stopped.ranks, ElementsAre(1));
  EXPECT_TRUE(stopped.inside);
  EXPECT_THAT(FindAbsent({0, 1, 2}, progress, 7, "SSS").ranks, IsEmpty()) << "then nobody can be named";
}

TEST(ProofVerdicts, WrongValuesAreAttributedToTheRightRank) {
  Step step = StepsOf({4, {}, true})[1];
  const auto text = [&](const std::vector<std::pair<int, StepAnswer::Wrong>>& wrong) {
    return WrongValueFinding(step, wrong, 4).evidence.english;
  };
  EXPECT_THAT(text({{2, {5, 1, 2, -1}}}),
              HasSubstr("rank 2 got a wrong result (rank 2: element 5 is 1 and must be 2)"));
  EXPECT_THAT(text({{0, {5, 1, 2, -1}}, {1, {5, 1, 2, -1}}, {2, {5, 1, 2, -1}}, {3, {5, 1, 2, -1}}}),
              HasSubstr("all ranks got a wrong result"));
  EXPECT_THAT(text({{0, {5, 1, 2, 3}}, {1, {5, 1, 2, 3}}}), HasSubstr("what rank 3 gave is wrong on ranks 0, 1"));
  step = PairStep(1, 1, 3, 8, 1);
  EXPECT_THAT(text({{3, {0, 1, 2, 1}}}), HasSubstr("the pair 1–3 is wrong: what rank 1 sent"));
}

TEST(ProofVerdicts, MemoryBoundsAreThoseOfTheBench) {
  EXPECT_EQ(BytesMoved(*bench::FindOperation("all_reduce"), 8, 100), 3800);
  EXPECT_EQ(BytesMoved(*bench::FindOperation("barrier"), 8, 100), 0);
}

TEST(ProofFaults, AreReadOrRefused) {
  EXPECT_THAT(*ReadProofFaults(""), IsEmpty());
  const auto both = ReadProofFaults("alter:0:barrier,slow:1:send_receive:3");
  ASSERT_TRUE(both);
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ((*both)[1].peer, 3);
  for (const char* text : {"alter", "alter:1", "melt:1:all_reduce", "alter:x:all_reduce", "alter:1:all_reducing",
                           "slow:1:barrier:y", "a:1:b:2:3"}) {
    EXPECT_FALSE(ReadProofFaults(text)) << text;
  }
}

TEST(ProofProgress, WhatIsNotWrittenIsNowhere) {
  const fulldeck::testing::TemporaryFolder folder;
  const std::string path = folder.string() + "/progress";
  EXPECT_EQ(ReadProgress(path, 2)[1].place, 0u);
  const RankProgress one = At(3, RankProgress::kChecking);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&one), sizeof one);
  const auto progress = ReadProgress(path, 2);
  EXPECT_EQ(progress[0].step(), 3);
  EXPECT_EQ(progress[0].phase(), RankProgress::kChecking);
  EXPECT_EQ(progress[1].pid, 0u);
}

// ---- devices ----

device::Inventory EightCards(int visible) {
  device::Inventory inventory;
  inventory.vendors.resize(1);
  for (int i = 0; i < 8; ++i) {
    device::Card card;
    card.index = i;
    card.visible = i < visible;
    card.collective_backend = "eccl";
    card.torch_module = "torch_gcu";
    if (card.visible) card.torch_device = "gcu:" + std::to_string(i);
    inventory.vendors[0].cards.push_back(card);
  }
  return inventory;
}

TEST(ProofDevices, AVendorsBackendWorksOnItsCards) {
  ProofPlan plan;
  plan.backend = "eccl";
  plan.ranks = 4;
  ASSERT_TRUE(ChooseDevices(EightCards(4), plan));
  EXPECT_THAT(plan.devices, ElementsAre("gcu:0", "gcu:1", "gcu:2", "gcu:3"));
  EXPECT_EQ(plan.module, "torch_gcu");
  plan.ranks = 5;
  EXPECT_THAT(ChooseDevices(EightCards(4), plan).error().message, HasSubstr("4 can be used"));
  plan.backend = "nccl";
  EXPECT_THAT(ChooseDevices(EightCards(4), plan).error().message, HasSubstr("no card of this machine has it"));
  plan.backend = "gloo";
  ASSERT_TRUE(ChooseDevices(EightCards(4), plan));
  EXPECT_THAT(plan.devices, IsEmpty());
  EXPECT_EQ(RanksFor(EightCards(8)), 8);
  EXPECT_EQ(RanksFor(device::Inventory()), 2);
}

}  // namespace
}  // namespace fulldeck::doctor
