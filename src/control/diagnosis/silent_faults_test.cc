#include "diagnosis/silent_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace fulldeck::diagnosis {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr int kRanks = 4;

// Ranks of a training, polled once per second. Correct unless a test changes it.
class Training {
 public:
  explicit Training(int ranks = kRanks, int world_size = kRanks) : faults_(world_size), ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) ranks_[static_cast<std::size_t>(rank)].rank = rank;
  }

  wire::Loop& loop(int rank) {
    auto& loop = ranks_[static_cast<std::size_t>(rank)].loop;
    if (!loop) loop.emplace();
    return *loop;
  }
  RankSnapshot& poll(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void UpdateAll(const std::function<void(int, wire::Loop&)>& update) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      update(static_cast<int>(rank), loop(static_cast<int>(rank)));
  }
  void StepTo(int rank, std::uint64_t step) {
    loop(rank).step = step;
    loop(rank).step_at_ns = 1 + step;
  }
  std::vector<events::Event> UpdateForEvents() {
    clock_.Advance(seconds(1));
    return faults_.Update(ranks_, clock_.Now());
  }
  std::vector<std::string> Update() { return MessagesOf(UpdateForEvents()); }
  std::vector<std::string> End() { return MessagesOf(faults_.CheckAtEnd(ranks_, clock_.Now())); }

 private:
  static std::vector<std::string> MessagesOf(const std::vector<events::Event>& found) {
    std::vector<std::string> messages;
    for (const events::Event& event : found) messages.push_back(event.message);
    return messages;
  }

  base::ManualClock clock_;
  SilentFaults faults_;
  std::vector<RankSnapshot> ranks_;
};

TEST(SilentFaults, ReportNothingOfASoundTraining) {
  Training training;
  EXPECT_THAT(training.Update(), IsEmpty()) << "nobody has told anything";
  for (std::uint64_t step = 1; step < 3000; step += 7) {
    training.UpdateAll([&](int rank, wire::Loop& loop) {
      const auto number = static_cast<std::uint64_t>(rank);
      training.StepTo(rank, step + number % 2);  // one of them is ahead by a step
      loop.first_batches = number + 1;
      loop.parameters = wire::StepFingerprint{loop.step * 31, loop.step};
      loop.reductions = 2 * loop.step;
      loop.unreduced_steps = 1;
      loop.communication_ns += 300'000'000 + number * 100'000'000;
    });
    ASSERT_THAT(training.Update(), IsEmpty()) << step;
  }
  EXPECT_THAT(training.End(), IsEmpty());
}

TEST(SilentFaults, NameTheSameBatchesWhenAllHaveReportedTheirs) {
  Training training;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(training.Update(), IsEmpty()) << rank;
    training.loop(rank).first_batches = 5;
  }
  EXPECT_THAT(training.Update(),
              ElementsAre(AllOf(StartsWith("J1: all 4 ranks trained their first 3 steps on the same batches"),
                                HasSubstr("DistributedSampler"))));
  EXPECT_THAT(training.Update(), IsEmpty()) << "once";
}

TEST(SilentFaults, AreEventsWithTheirCodeAndRanks) {
  Training some;
  some.UpdateAll([](int rank, wire::Loop& loop) { loop.first_batches = rank == 3 ? 1 : rank; });
  const auto found = some.UpdateForEvents();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "silent-error");
  EXPECT_EQ(found[0].fields.Text("code"), "J1");
  EXPECT_THAT(found[0].fields.Ints("ranks"), ElementsAre(1, 3));
}

TEST(SilentFaults, NameTheRanksThatShareBatchesAndTheNodeWhenThereAreOthers) {
  Training some;
  some.UpdateAll([](int rank, wire::Loop& loop) { loop.first_batches = rank == 3 ? 1 : rank; });
  EXPECT_THAT(some.Update(), ElementsAre(StartsWith("J1: ranks 1 and 3 trained")));
  Training host(4, 8);
  host.UpdateAll([](int, wire::Loop& loop) { loop.first_batches = 9; });
  EXPECT_THAT(host.Update(), ElementsAre(StartsWith("J1: all 4 ranks of this host trained")));
}

TEST(SilentFaults, NameAnOrderThatIsRepeatedAlsoWhenThereIsOneRank) {
  Training training;
  training.loop(2).repeated_orders = 1;
  EXPECT_THAT(training.Update(),
              ElementsAre(AllOf(StartsWith("J2: the sampler of rank 2 gives the same order in every"),
                                HasSubstr("set_epoch"))));
  Training lone(1, 8);
  lone.loop(0).repeated_orders = 3;
  EXPECT_THAT(lone.Update(), ElementsAre(StartsWith("J2: the sampler of rank 0")));
}

TEST(SilentFaults, CompareParametersOfTheSameStepOnly) {
  Training training;
  training.UpdateAll([](int rank, wire::Loop& loop) {
    loop.parameters = wire::StepFingerprint{static_cast<std::uint64_t>(rank + 1), static_cast<std::uint64_t>(rank)};
  });
  EXPECT_THAT(training.Update(), IsEmpty()) << "all different, each of another step";
  // They reach step 10 one after the other; rank 0 is at step 20 by then.
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank > 0) training.loop(0).parameters = wire::StepFingerprint{2, 20};
    training.loop(rank).parameters = wire::StepFingerprint{rank == 1 ? 8U : 7U, 10};
    if (rank + 1 < kRanks) {
      EXPECT_THAT(training.Update(), IsEmpty());
    }
  }
  EXPECT_THAT(training.Update(),
              ElementsAre(StartsWith("J3: the parameters differ between the ranks after step 10: rank 1. ")));
  training.UpdateAll([](int rank, wire::Loop& loop) { loop.parameters = wire::StepFingerprint{rank + 1U, 30}; });
  EXPECT_THAT(training.Update(), IsEmpty()) << "once";
}

TEST(SilentFaults, BlameNobodyWhenNoTwoRanksAgree) {
  Training training;
  training.UpdateAll([](int rank, wire::Loop& loop) { loop.parameters = wire::StepFingerprint{rank + 1U, 10}; });
  EXPECT_THAT(training.Update(), ElementsAre(HasSubstr("after step 10: all 4 ranks. ")));
}

TEST(SilentFaults, NameStepsWithoutAReduction) {
  Training training;
  training.UpdateAll([&](int rank, wire::Loop& loop) {
    training.StepTo(rank, 2);
    loop.unreduced_steps = 1;
  });
  EXPECT_THAT(training.Update(), IsEmpty()) << "one can be meant";
  training.UpdateAll([](int, wire::Loop& loop) { loop.unreduced_steps = 2; });
  EXPECT_THAT(training.Update(),
              ElementsAre(AllOf(StartsWith("J4: the optimizer of all 4 ranks steps without a forward through"),
                                HasSubstr("(2 steps, 0 reductions)"), HasSubstr("not .module(x)"))));
  EXPECT_THAT(training.Update(), IsEmpty());
}

TEST(SilentFaults, NameRanksThatSaveToTheSameFile) {
  Training training;
  training.UpdateAll([](int rank, wire::Loop& loop) { loop.saved_file = rank < 2 ? 0 : rank; });
  EXPECT_THAT(training.Update(), IsEmpty()) << "nothing, or a file of its own";
  training.loop(1).saved_file = 3;
  EXPECT_THAT(training.Update(), ElementsAre(StartsWith("G5: ranks 1 and 3 saved to the same file")));
  EXPECT_THAT(training.Update(), IsEmpty());
}

TEST(SilentFaults, NameTheOneRankThatMakesSteps) {
  Training training;
  std::vector<std::string> lines;
  std::uint64_t step = 0;
  for (int poll = 0; poll < 5; ++poll) {
    training.StepTo(2, step += 4);
    EXPECT_THAT(training.Update(), IsEmpty());
  }
  training.StepTo(2, 22);
  EXPECT_THAT(training.Update(), ElementsAre(AllOf(StartsWith("J5: only rank 2 trains: it is at step 22"),
                                                   HasSubstr("the others stand, the furthest at step 0"))));
  EXPECT_THAT(training.End(), IsEmpty()) << "once";
}

TEST(SilentFaults, NameTheOneRankThatGoesOnWhileTheOthersStand) {
  Training training;
  training.UpdateAll([&](int rank, wire::Loop&) { training.StepTo(rank, 50); });
  EXPECT_THAT(training.Update(), IsEmpty());
  for (std::uint64_t step = 51; step < 62; ++step) {
    training.StepTo(0, step);
    if (step < 60) {
      EXPECT_THAT(training.Update(), IsEmpty()) << step;
    }
  }
  EXPECT_THAT(training.Update(), ElementsAre(AllOf(StartsWith("J5: only rank 0 trains: it is at step 61"),
                                                   HasSubstr("the furthest at step 50"))));
}

TEST(SilentFaults, GiveTheOthersTimeToStartAndToCatchUp) {
  Training training;
  std::uint64_t step = 0;
  for (int poll = 0; poll < 40; ++poll) {
    training.StepTo(0, step += 5);
    if (poll % 4 == 3) training.StepTo(1 + poll % 3, step);
    ASSERT_THAT(training.Update(), IsEmpty()) << poll;
  }
}

TEST(SilentFaults, LetASlowRankMakeTheStepsThatTheOthersHaveMade) {
  Training training;
  training.UpdateAll([&](int rank, wire::Loop&) { training.StepTo(rank, rank == 0 ? 20 : 100); });
  EXPECT_THAT(training.Update(), IsEmpty());
  for (std::uint64_t step = 25; step <= 100; step += 5) {
    training.StepTo(0, step);
    ASSERT_THAT(training.Update(), IsEmpty()) << step;
  }
  EXPECT_THAT(training.End(), IsEmpty());
  for (std::uint64_t step = 105; step < 110; ++step) {
    training.StepTo(0, step);
    ASSERT_THAT(training.Update(), IsEmpty()) << step;
  }
  training.StepTo(0, 110);
  EXPECT_THAT(training.Update(), ElementsAre(StartsWith("J5: only rank 0 trains: it is at step 110"))) << "beyond them";
}

TEST(SilentFaults, JudgeAShortTrainingAtItsEnd) {
  Training training;
  training.StepTo(1, 3);
  EXPECT_THAT(training.Update(), IsEmpty());
  EXPECT_THAT(training.End(), ElementsAre(AllOf(StartsWith("J5: only rank 1 trained: it made 3 steps"),
                                                HasSubstr("the other ranks made none"))));
  Training two;
  two.StepTo(1, 3);
  two.StepTo(2, 9);
  EXPECT_THAT(two.End(), IsEmpty()) << "no one rank alone";
  Training few;
  few.StepTo(0, 2);
  EXPECT_THAT(few.End(), IsEmpty()) << "may be a trial";
}

// Every rank steps; how much of each second each one waits, updated in two ways.
struct WaitCase {
  const char* name;
  std::vector<int> percent;
  bool reported;
  bool found;
};

class Waiting : public testing::TestWithParam<WaitCase> {};

TEST_P(Waiting, IsNamedWhenAllButOneDoNothingElse) {
  Training training;
  std::vector<std::string> lines;
  for (std::uint64_t poll = 1; poll <= 40; ++poll) {
    training.UpdateAll([&](int rank, wire::Loop& loop) {
      training.StepTo(rank, 30 * poll);
      const auto waited = static_cast<std::uint64_t>(GetParam().percent[static_cast<std::size_t>(rank)]) * 10'000'000;
      if (GetParam().reported) {
        loop.communication_ns += waited;
      } else {
        training.poll(rank).waited_ns += waited;
      }
    });
    for (const std::string& line : training.Update()) lines.push_back(line);
  }
  if (GetParam().found) {
    EXPECT_THAT(lines, ElementsAre(AllOf(StartsWith("J5: only rank 1 works: the others wait for it at least 9"),
                                         HasSubstr("% of the time"))));
  } else {
    EXPECT_THAT(lines, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Waiting,
                         testing::Values(WaitCase{"OneWorks", {95, 3, 92, 99}, true, true},
                                         WaitCase{"OneWorksByItsGroups", {95, 3, 92, 99}, false, true},
                                         WaitCase{"TwoWork", {95, 3, 4, 99}, true, false},
                                         WaitCase{"OneIsSlowish", {70, 3, 60, 75}, true, false},
                                         WaitCase{"AllWaitForTheNetwork", {95, 93, 92, 99}, true, false},
                                         WaitCase{"NobodyTells", {0, 0, 0, 0}, true, false}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(SilentFaults, TakeAValidationOfOneRankForNone) {
  Training training;
  for (std::uint64_t poll = 1; poll <= 120; ++poll) {
    const bool validates = poll % 30 > 20;
    training.UpdateAll([&](int rank, wire::Loop& loop) {
      if (!validates) training.StepTo(rank, loop.step + 30);
      if (validates && rank != 0) loop.communication_ns += 1'000'000'000;
    });
    ASSERT_THAT(training.Update(), IsEmpty()) << poll;
  }
}

TEST(SilentFaults, SeveralAreNamedAtOnce) {
  Training training(2, 2);
  training.UpdateAll([&](int rank, wire::Loop& loop) {
    training.StepTo(rank, 10);
    loop.first_batches = 1;
    loop.repeated_orders = 1;
    loop.unreduced_steps = 10;
    loop.parameters = wire::StepFingerprint{rank + 1U, 10};
  });
  EXPECT_THAT(training.Update(),
              UnorderedElementsAre(StartsWith("J1: "), StartsWith("J2: "), StartsWith("J3: "), StartsWith("J4: ")));
  EXPECT_THAT(training.End(), IsEmpty());
}

TEST(SilentFaults, AreReadFromABoard) {
  auto board = wire::RankBoard::Create({"run", 0, 2, 4, 8});
  ASSERT_TRUE(board);
  const auto ranks = TakeSnapshots(*board, base::TimePoint(seconds(5)));
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[1].rank, 5);
  EXPECT_FALSE(ranks[0].loop);
  EXPECT_EQ(ranks[0].waited_ns, 0U);
}

}  // namespace
}  // namespace fulldeck::diagnosis
