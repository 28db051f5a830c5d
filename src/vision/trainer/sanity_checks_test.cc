// Problems in the first steps, each with its message.
#include "trainer/sanity_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "trainer/resume.h"
#include "trainer/stop_signal.h"
#include "trainer/validation.h"

namespace fulldeck::trainer {
namespace {

using ::testing::HasSubstr;

TEST(SanityChecks, NameTheRanksThatTrainOnTheSameSamples) {
  EXPECT_FALSE(ProblemOfRanks({{1, {0, 1}}, {2, {2, 3}}}));
  EXPECT_FALSE(ProblemOfRanks({{1, {0}}}));
  // Nothing could be read; that is reported elsewhere.
  EXPECT_FALSE(ProblemOfRanks({{0, {}}, {0, {}}}));
  EXPECT_THAT(ProblemOfRanks({{1, {0, 1}}, {2, {2, 3}}, {3, {4, 2}}}).value_or(""),
              HasSubstr("sample 2 is in the batches of rank 1 and of rank 2 at the same step"));
  EXPECT_THAT(ProblemOfRanks({{7, {0, 1}}, {7, {2, 3}}}).value_or(""),
              HasSubstr("rank 0 and rank 1 have the same batch (fingerprint 0000000000000007)"));
}

TEST(SanityChecks, RefuseAnOrderThatRepeatsItself) {
  EXPECT_FALSE(ProblemOfEpochs({1, 2, 3}, {3, 1, 2}));
  EXPECT_THAT(ProblemOfEpochs({1, 2, 3}, {1, 2, 3}).value_or(""),
              HasSubstr("the same 3 samples in the same order as the one before"));
}

TEST(SanityChecks, NameParametersThatGetNoGradient) {
  EXPECT_FALSE(ProblemOfGradients({}, 5, 1));
  EXPECT_THAT(
      ProblemOfGradients({"head.classifier.weight"}, 5, 1).value_or(""),
      HasSubstr("1 of 5 parameters that should learn got no gradient in the first step: head.classifier.weight"));
  EXPECT_THAT(ProblemOfGradients({"a", "b", "c", "d", "e", "f", "g", "h"}, 9, 20).value_or(""),
              HasSubstr("first 20 steps: a, b, c, d, e, f and 2 more"));
}

TEST(SanityChecks, RefuseALossThatStandsStill) {
  EXPECT_FALSE(ProblemOfLosses({1.0, 0.99}));
  EXPECT_FALSE(ProblemOfLosses({1.0}));
  EXPECT_THAT(ProblemOfLosses(std::vector<double>(20, 0.25)).value_or(""),
              HasSubstr("the loss was 0.25 in each of the first 20 steps: nothing is learnt"));
  EXPECT_TRUE(ProblemOfLosses({0, 0, 0}));
}

TEST(Resume, RefusesAnotherNumberOfClassesAndNamesWhatElseChanged) {
  const std::string saved = TrainedWith({"road", "water"}, 8, 16);
  EXPECT_EQ(CompareForResume(saved, saved).refusal, "");
  EXPECT_TRUE(CompareForResume(saved, saved).changed.empty());
  EXPECT_THAT(CompareForResume(saved, TrainedWith({"road", "water", "forest"}, 8, 16)).refusal,
              HasSubstr("made with 2 classes (road, water), and now there are 3 (road, water, forest)"));
  const Changes changes = CompareForResume(saved, TrainedWith({"road", "river"}, 4, 16));
  EXPECT_EQ(changes.refusal, "");
  EXPECT_THAT(changes.changed,
              ::testing::ElementsAre("classes: road, water before, road, river now", "cards: 8 before, 4 now"));
  // An empty file rules nothing out.
  EXPECT_EQ(CompareForResume("", saved).refusal, "");
}

TEST(Validation, GivesEverySampleToExactlyOneRank) {
  for (const int ranks : {1, 3, 8}) {
    std::vector<int> seen(13, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const std::uint64_t sample : ShardOf(seen.size(), rank, ranks)) ++seen[sample];
    }
    EXPECT_THAT(seen, ::testing::Each(1)) << ranks;
  }
  EXPECT_TRUE(ShardOf(2, 5, 8).empty());
}

TEST(StopSignals, RecordTheFirstAndGiveTheExitCode) {
  {
    const StopSignals signals;
    EXPECT_EQ(StopSignals::Received(), 0);
    std::raise(SIGUSR1);
    std::raise(SIGTERM);
    EXPECT_EQ(StopSignals::Received(), SIGUSR1);
  }
  std::raise(SIGUSR1);  // a signal that was already pending has no effect
  EXPECT_EQ(SignalName(SIGTERM), "SIGTERM");
  EXPECT_EQ(ExitCodeAfter(SIGTERM), 143);
  EXPECT_EQ(ExitCodeAfter(SIGUSR1), 0);
}

}  // namespace
}  // namespace fulldeck::trainer
