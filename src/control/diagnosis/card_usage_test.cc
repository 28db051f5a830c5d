#include "diagnosis/card_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::diagnosis {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr base::Duration kIdleAfter = 60s;

// Rank r has the pids 100 (r + 1) to 100 (r + 1) + 99; all others are foreign.
std::optional<int> RankOf(int pid, std::uint64_t) {
  if (pid < 100 || pid >= 1000) return std::nullopt;
  return pid / 100 - 1;
}

// Two cards with one rank each: pids 100… belong to rank 0, 200… to rank 1, 5000 is foreign.
class CardUsageOfTwo : public testing::Test {
 protected:
  struct Sample {
    std::vector<device::ProcessWork> work;
    bool probes = true;
    std::uint64_t steps = 0;
    std::uint64_t collectives = 0;
    std::optional<double> percent;
    std::optional<std::vector<int>> holders = std::vector<int>();
    std::uint64_t probed_ns = 0;
    bool model_on_cpu = false;
  };
  CardReading Reading(int card, const Sample& sample, bool counter) {
    CardReading reading;
    reading.card = card;
    reading.at = base::TimePoint(now_);
    reading.percent = sample.percent;
    reading.holders = sample.holders;
    if (counter) reading.work = sample.work;
    reading.progress = {sample.probes,      sample.steps > 0, sample.steps,
                        sample.collectives, sample.probed_ns, sample.model_on_cpu};
    return reading;
  }
  void Counter(int card, const Sample& sample) { usage_.Observe(Reading(card, sample, true), RankOf); }
  void Percent(int card, const Sample& sample) { usage_.Observe(Reading(card, sample, false), RankOf); }
  void Wait(base::Duration time) { now_ += time; }

  CardUsage usage_{{{"gcu 0", {0}}, {"gcu 1", {1}}}, kIdleAfter};
  base::Duration now_ = 1000s;
};

device::ProcessWork Busy(int pid, std::uint64_t nanoseconds, int slot = 0) {
  return {slot, pid, static_cast<std::uint64_t>(pid), nanoseconds};
}

TEST_F(CardUsageOfTwo, WhatTheProbeDidBeforeTheFirstStepIsNoEvidence) {
  Counter(0, {});
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 5'000'000)}});
  for (std::uint64_t step = 1; step <= 50; ++step) {
    Wait(100ms);
    Counter(0, {.work = {Busy(100, 5'000'000)}, .steps = step});
  }
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
  EXPECT_EQ(usage_.Verdict(0).reason, "no-work");
}

TEST_F(CardUsageOfTwo, TheWorkOfTheProbeIsNotCountedWhenItIsSeenWithTheFirstStep) {
  Counter(0, {});
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 5'000'000)}, .steps = 1});
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 5'000'000)}, .steps = 2});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
}

TEST_F(CardUsageOfTwo, ACounterThatAdvancesFromStepToStepIsBusyAfterOneInterval) {
  Counter(0, {.work = {Busy(100, 10)}, .steps = 1});
  EXPECT_EQ(usage_.Verdict(0).reason, "run-too-short");
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 20)}, .steps = 2});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
  EXPECT_EQ(usage_.Verdict(0).reason, "counter");
}

TEST_F(CardUsageOfTwo, AReadingWithoutAStepEndsNoInterval) {
  Counter(0, {.work = {Busy(100, 10)}, .steps = 1});
  for (int i = 0; i < 50; ++i) {  // a slow step: five seconds of data loading, then the card
    Wait(100ms);
    Counter(0, {.work = {Busy(100, 10)}, .steps = 1});
  }
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kUnknown);
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 90)}, .steps = 1});
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 90)}, .steps = 2});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
  EXPECT_EQ(usage_.Verdict(0).intervals, 1);
}

TEST_F(CardUsageOfTwo, ABurstAfterTheFirstStepIsNotTraining) {
  std::uint64_t busy = 10;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    if (step < 5) busy += 1'000'000;
    Counter(0, {.work = {Busy(100, busy)}, .steps = step});
    Wait(100ms);
  }
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
  EXPECT_EQ(usage_.Verdict(0).reason, "burst");
  EXPECT_EQ(usage_.Verdict(0).active, 3);
}

TEST_F(CardUsageOfTwo, AnotherRanksWorkOnTheCardIsNotItsOwn) {
  std::uint64_t busy = 0;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    busy += 1000;
    Counter(0, {.work = {Busy(100, busy)}, .steps = step});
    Counter(1, {.work = {Busy(100, busy), Busy(200, 7, 1)}, .steps = step, .holders = std::vector<int>{100, 200}});
    Wait(100ms);
  }
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
  const CardVerdict verdict = usage_.Verdict(1);
  EXPECT_EQ(verdict.usage, Usage::kIdle);
  EXPECT_EQ(verdict.reason, "other-rank");
  EXPECT_THAT(verdict.used_by_ranks, ElementsAre(0));
  EXPECT_EQ(verdict.works_on, "");
}

TEST_F(CardUsageOfTwo, SwappedCardsAreIdleForBothRanks) {
  std::uint64_t busy = 0;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    busy += 1000;
    Counter(0, {.work = {Busy(201, busy)}, .steps = step});
    Counter(1, {.work = {Busy(100, busy)}, .steps = step});
    Wait(100ms);
  }
  EXPECT_EQ(usage_.Verdict(0).reason, "other-rank");
  EXPECT_EQ(usage_.Verdict(0).works_on, "gcu 1");
  EXPECT_EQ(usage_.Verdict(1).reason, "other-rank");
  EXPECT_EQ(usage_.Verdict(1).works_on, "gcu 0");
}

TEST_F(CardUsageOfTwo, AForeignProcessOnTheCardIsNamed) {
  std::uint64_t busy = 1'000'000;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    busy += 1000;
    Counter(0, {.work = {Busy(5000, busy), Busy(100, 7, 1)}, .steps = step, .holders = std::vector<int>{5000, 100}});
    Wait(100ms);
  }
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
  EXPECT_EQ(usage_.Verdict(0).reason, "foreign-process");
  EXPECT_THAT(usage_.Verdict(0).used_by_pids, ElementsAre(5000));
}

TEST_F(CardUsageOfTwo, AProcessThatClosedTheCardKeepsWhatItDid) {
  Counter(0, {.work = {Busy(100, 10)}, .steps = 1});
  Wait(100ms);
  device::ProcessWork closed = Busy(100, 90);
  closed.pid = 0;
  Counter(0, {.work = {closed}, .steps = 4});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
}

TEST_F(CardUsageOfTwo, AProgramWithNothingOfOursInItCountsFromItsStart) {
  Counter(0, {.probes = false});
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 50)}, .probes = false});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
}

TEST_F(CardUsageOfTwo, AProgramThatReportsNothingCountsAfterADelay) {
  std::uint64_t busy = 0;
  for (; now_ < 1000s + CardUsage::kQuietDelay; Wait(100ms)) {
    Counter(0, {.work = {Busy(100, busy += 1000)}});
    EXPECT_EQ(usage_.Verdict(0).reason, "run-too-short");
  }
  for (int i = 0; i < 4; ++i, Wait(100ms)) Counter(0, {.work = {Busy(100, busy += 1000)}});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
}

TEST_F(CardUsageOfTwo, AProgramThatReportsNothingAndWorksInTwoReadingsOfManyIsUnknown) {
  for (int i = 0; i < 50; ++i, Wait(100ms)) Counter(0, {.work = {Busy(100, 5000)}});
  for (int i = 0; i < 80; ++i, Wait(100ms)) Counter(0, {.work = {Busy(100, i < 10 ? 5000 : i < 40 ? 6000 : 7000)}});
  EXPECT_EQ(usage_.Verdict(0).active, 2);
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kUnknown);
  EXPECT_EQ(usage_.Verdict(0).reason, "few-readings");
  for (int i = 0; i < 80; ++i, Wait(100ms)) Counter(1, {.work = {Busy(200, 5000)}});
  EXPECT_EQ(usage_.Verdict(1).usage, Usage::kIdle) << "what it did in the first five seconds may be the probe's";
}

TEST_F(CardUsageOfTwo, WhatALateProbeDidIsNoEvidence) {
  for (int i = 0; i < 60; ++i, Wait(100ms)) Counter(0, {});
  // Two readings arrive while the probe computes, the third together with its end.
  for (std::uint64_t busy = 1000; busy <= 2000; busy += 1000, Wait(100ms)) Counter(0, {.work = {Busy(100, busy)}});
  EXPECT_EQ(usage_.Verdict(0).reason, "few-readings");
  Counter(0, {.work = {Busy(100, 3000)}, .probed_ns = 77});
  for (int i = 0; i < 20; ++i, Wait(100ms)) Counter(0, {.work = {Busy(100, 3000)}, .probed_ns = 77});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
  EXPECT_EQ(usage_.Verdict(0).reason, "no-work");
  std::uint64_t busy = 3000;
  for (int i = 0; i < 3; ++i, Wait(100ms)) Counter(0, {.work = {Busy(100, busy += 1000)}, .probed_ns = 77});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy) << "what came after it";
}

TEST_F(CardUsageOfTwo, AProbeAmongStepsTakesNothingAway) {
  std::uint64_t busy = 0;
  for (std::uint64_t step = 1; step <= 5; ++step, Wait(100ms)) {
    Counter(0, {.work = {Busy(100, busy += 1000)}, .steps = step});
  }
  Counter(0, {.work = {Busy(100, busy += 1000)}, .steps = 6, .probed_ns = 77});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy);
  EXPECT_EQ(usage_.Verdict(0).intervals, 5);
  EXPECT_EQ(usage_.Verdict(0).active, 4);
}

TEST_F(CardUsageOfTwo, ARankThatTrainsOnTheCpuIsNeverBusy) {
  std::uint64_t busy = 0;
  for (std::uint64_t step = 1; step <= 40; ++step, Wait(100ms)) {
    const bool seen = step >= 20;
    Counter(0, {.work = {Busy(100, busy += 1000)}, .steps = step, .model_on_cpu = seen});
    EXPECT_EQ(usage_.Verdict(0).usage, seen ? Usage::kIdle : step < 2 ? Usage::kUnknown : Usage::kBusy) << step;
  }
  EXPECT_EQ(usage_.Verdict(0).reason, "model-on-cpu");
  EXPECT_EQ(usage_.Verdict(0).active, 39);
  EXPECT_EQ(usage_.Now(0), Usage::kIdle);
  Percent(1, {.model_on_cpu = true});
  EXPECT_EQ(usage_.Verdict(1).reason, "model-on-cpu") << "also where nothing reports what the card does";
  usage_.Lost();
  EXPECT_EQ(usage_.Verdict(0).reason, "not-read");
}

TEST_F(CardUsageOfTwo, CollectivesCountWhereNoStepIsReported) {
  Counter(0, {.work = {Busy(100, 5000)}, .collectives = 1});
  for (std::uint64_t call = 2; call < 6; ++call) {
    Wait(100ms);
    Counter(0, {.work = {Busy(100, 5000)}, .collectives = call});
  }
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kUnknown) << "half a second of a rank without a step";
  Wait(1s);
  Counter(0, {.work = {Busy(100, 5000)}, .collectives = 9});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
}

TEST_F(CardUsageOfTwo, WorkBetweenTheFirstCollectiveAndTheFirstStepsCounts) {
  Counter(0, {.work = {Busy(100, 5000)}, .collectives = 1});
  Wait(100ms);
  Counter(0, {.work = {Busy(100, 9000)}, .steps = 5, .collectives = 6});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy) << "all steps between two readings";
}

TEST_F(CardUsageOfTwo, PercentagesNeedSeveralReadingsAndAProcessOfTheRank) {
  struct Case {
    const char* name;
    std::optional<std::vector<int>> holders;
    double percent;
    Usage usage;
    const char* reason;
  };
  const std::vector<int> own{100};
  for (const Case& each :
       {Case{"own", own, 50, Usage::kBusy, "readings"}, Case{"at zero", own, 0, Usage::kIdle, "no-work"},
        Case{"nobody at zero", std::vector<int>(), 0, Usage::kIdle, "not-opened"},
        Case{"foreign", std::vector<int>{5000}, 50, Usage::kIdle, "foreign-process"},
        Case{"other rank", std::vector<int>{200}, 50, Usage::kIdle, "other-rank"},
        Case{"own and foreign", std::vector<int>{100, 5000}, 50, Usage::kUnknown, "shared"},
        Case{"not known", std::nullopt, 50, Usage::kUnknown, "holder-unknown"},
        Case{"not known at zero", std::nullopt, 0, Usage::kIdle, "no-work"},
        Case{"nobody", std::vector<int>(), 50, Usage::kUnknown, "holder-unknown"}}) {
    CardUsage usage({{"cuda 0", {0}}}, kIdleAfter);
    now_ = 1000s;
    for (std::uint64_t step = 1; now_ < 1000s + 8s; ++step, Wait(1s)) {
      usage.Observe(Reading(0, {.steps = step, .percent = each.percent, .holders = each.holders}, false), RankOf);
      if (now_ < 1000s + CardUsage::kPercentWindow) {
        EXPECT_EQ(usage.Verdict(0).reason, "run-too-short") << each.name << ": it may be the probe's";
      }
    }
    EXPECT_EQ(usage.Verdict(0).usage, each.usage) << each.name;
    EXPECT_EQ(usage.Verdict(0).reason, each.reason) << each.name;
  }
}

TEST_F(CardUsageOfTwo, WhatNobodyReadsIsUnknown) {
  EXPECT_EQ(usage_.Verdict(0).reason, "not-read");
  Percent(0, {.steps = 3});
  EXPECT_EQ(usage_.Verdict(0).reason, "no-telemetry");
  for (std::uint64_t step = 1; step < 9; ++step, Wait(100ms)) Counter(1, {.steps = step});
  EXPECT_EQ(usage_.Verdict(1).usage, Usage::kIdle);
  usage_.Lost();
  EXPECT_EQ(usage_.Verdict(1).usage, Usage::kUnknown);
  EXPECT_EQ(usage_.Verdict(1).reason, "not-read");
}

TEST_F(CardUsageOfTwo, ACardThatNeverWorksIsIdleInTheEndAlsoWithoutAStep) {
  for (int i = 0; i < 3; ++i, Wait(1s)) Counter(0, {});
  EXPECT_EQ(usage_.Verdict(0).reason, "run-too-short");
  for (int i = 0; i < 60; ++i, Wait(1s)) Counter(0, {});
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kIdle);
  EXPECT_EQ(usage_.Verdict(0).reason, "not-opened");
}

TEST_F(CardUsageOfTwo, ACardThatFallsIdleLaterIsSeen) {
  std::uint64_t busy = 0;
  std::uint64_t step = 0;
  for (int i = 0; i < 100; ++i, Wait(1s)) Counter(0, {.work = {Busy(100, busy += 1000)}, .steps = ++step});
  EXPECT_EQ(usage_.FellIdle(0), std::nullopt);
  EXPECT_EQ(usage_.Now(0), Usage::kBusy);
  for (int i = 0; i < 62; ++i, Wait(1s)) Counter(0, {.work = {Busy(100, busy)}, .steps = ++step});
  ASSERT_TRUE(usage_.FellIdle(0).has_value());
  EXPECT_GE(*usage_.FellIdle(0), kIdleAfter);
  EXPECT_EQ(usage_.Now(0), Usage::kIdle);
  EXPECT_EQ(usage_.Verdict(0).usage, Usage::kBusy) << "it did work";
  Counter(0, {.work = {Busy(100, busy + 1)}, .steps = ++step});
  EXPECT_EQ(usage_.Now(0), Usage::kBusy);
}

TEST(CardUsageEvents, CarryTheVerdictsAsFields) {
  const CardUsage usage({{"gcu 0", {0}}, {"gcu 1", {1}}, {"gcu 2", {2}}}, kIdleAfter);
  CardVerdict busy{.usage = Usage::kBusy, .reason = "counter"};
  CardVerdict idle{.usage = Usage::kIdle, .reason = "other-rank", .used_by_ranks = {0}};
  CardVerdict unknown{.usage = Usage::kUnknown, .reason = "run-too-short"};
  const events::Event event = CardUsageEvent(usage, {busy, idle, unknown}, "end");
  EXPECT_EQ(event.id, "card-usage");
  EXPECT_EQ(event.fields.Text("when"), "end");
  const auto names = [&](const char* field) { return std::get<std::vector<std::string>>(*event.fields.Find(field)); };
  EXPECT_THAT(names("busy"), ElementsAre("gcu 0"));
  EXPECT_THAT(names("idle"), ElementsAre("gcu 1"));
  EXPECT_THAT(names("unknown"), ElementsAre("gcu 2"));
  EXPECT_THAT(names("reasons"), ElementsAre("gcu 0: counter", "gcu 1: other-rank", "gcu 2: run-too-short"));
  const events::Event named = CardIdleEvent(usage.card(1), idle);
  EXPECT_EQ(named.id, "card-idle");
  EXPECT_EQ(named.severity, events::Severity::kWarning);
  EXPECT_THAT(named.fields.Ints("ranks"), ElementsAre(1));
  EXPECT_THAT(named.fields.Ints("used_by_ranks"), ElementsAre(0));
  EXPECT_THAT(named.fields.Ints("used_by_pids"), IsEmpty());
  EXPECT_EQ(CardUnknownEvent(usage.card(2), unknown).severity, events::Severity::kInfo);
  const events::Event failed = CardWatchFailedEvent("fork: no room");
  EXPECT_EQ(failed.id, "card-watch-failed");
  EXPECT_EQ(failed.fields.Text("reason"), "fork: no room");
}

}  // namespace
}  // namespace fulldeck::diagnosis
