#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/ending.h"
#include "launcher/error_file.h"
#include "launcher/idle_gate.h"
#include "launcher/restart_policy.h"
#include "launcher/root_cause.h"
#include "launcher/run_cgroup.h"

namespace fulldeck::launcher {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

int ExitStatus(int code) {
  return code << 8;
}

TEST(Ending, ReportsAll256ExitCodesAsTheyAre) {
  for (int code = 0; code < 256; ++code) {
    const Ending ending{ExitStatus(code)};
    EXPECT_EQ(ending.exit_code(), code);
    EXPECT_EQ(ending.ok(), code == 0);
    EXPECT_EQ(ending.signal_number(), 0);
    EXPECT_EQ(ending.InWords(), "exited with code " + std::to_string(code));
  }
}

TEST(Ending, ReportsSignalsAsAShellDoes) {
  for (int signal_number = 1; signal_number < 32; ++signal_number) {
    const Ending ending{signal_number};
    EXPECT_EQ(ending.exit_code(), 128 + signal_number);
    EXPECT_THAT(ending.InWords(), HasSubstr("killed by " + SignalName(signal_number)));
    EXPECT_FALSE(ending.ok());
  }
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(SignalName(63), "signal 63");
  EXPECT_EQ(Ending{SIGSEGV | 0x80}.exit_code(), 139) << "with a core dump";
}

AttemptRecord Attempt(int seconds, std::optional<std::uint64_t> step = std::nullopt) {
  return {milliseconds(seconds * 1000), step};
}

struct RestartCase {
  const char* name;
  std::vector<AttemptRecord> attempts;
  int max_restarts;
  AfterFailure what;
  int delay_ms;
};

class RestartTable : public testing::TestWithParam<RestartCase> {};

TEST_P(RestartTable, Decides) {
  const RestartDecision decision = AfterAttempt(GetParam().attempts, GetParam().max_restarts);
  EXPECT_EQ(decision.what, GetParam().what);
  EXPECT_EQ(decision.delay, milliseconds(GetParam().delay_ms));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, RestartTable,
    testing::Values(
        RestartCase{"NoneAllowed", {Attempt(500)}, 0, AfterFailure::kGiveUp, 0},
        RestartCase{"OneLeftAfterProgress", {Attempt(500)}, 1, AfterFailure::kRestart, 100},
        RestartCase{"OneLeftWithoutProgress", {Attempt(5)}, 1, AfterFailure::kRestart, 1000},
        RestartCase{"SecondWithoutProgressWaitsLonger", {Attempt(5), Attempt(5)}, 9, AfterFailure::kRestart, 2000},
        RestartCase{"ThreeWithoutProgress", {Attempt(5), Attempt(5), Attempt(5)}, 9, AfterFailure::kCrashLoop, 0},
        RestartCase{"ThreeButNoneLeft", {Attempt(5), Attempt(5), Attempt(5)}, 2, AfterFailure::kGiveUp, 0},
        RestartCase{"AMinuteOfLifeIsProgress", {Attempt(5), Attempt(5), Attempt(60)}, 9, AfterFailure::kRestart, 100},
        RestartCase{
            "AStepFurtherIsProgress", {Attempt(5, 10), Attempt(5, 10), Attempt(5, 11)}, 9, AfterFailure::kRestart, 100},
        RestartCase{"TheSameStepIsNone",
                    {Attempt(500, 10), Attempt(500, 10), Attempt(500, 10), Attempt(500, 9)},
                    9,
                    AfterFailure::kCrashLoop,
                    0},
        RestartCase{
            "StepZeroIsNone", {Attempt(500, 0), Attempt(500, 0), Attempt(500, 0)}, 9, AfterFailure::kCrashLoop, 0}),
    [](const auto& row) { return row.param.name; });

RankEnding End(int rank, int status, int order, bool after_stop = false, std::optional<double> stamp = std::nullopt) {
  return {rank, Ending{status}, order, after_stop, stamp};
}

TEST(RootCause, IsNothingWhenAllEndedWell) {
  EXPECT_EQ(RootCause({End(0, 0, 1), End(1, 0, 2)}), std::nullopt);
  EXPECT_EQ(RootCause({}), std::nullopt);
}

TEST(RootCause, IsTheFirstToFailNotThoseThatWeStopped) {
  EXPECT_EQ(RootCause({End(0, SIGTERM, 2, true), End(1, 0, 1), End(2, ExitStatus(1), 2), End(3, SIGTERM, 3, true)}),
            2u);
  EXPECT_EQ(RootCause({End(0, ExitStatus(1), 5, true), End(7, ExitStatus(1), 6)}), 1u);
}

TEST(RootCause, IsTheCrashWhenOthersNoticedInTheSameTurn) {
  EXPECT_EQ(RootCause({End(0, ExitStatus(1), 4), End(1, ExitStatus(1), 4), End(5, SIGKILL, 4)}), 2u);
}

TEST(RootCause, IsTheOldestErrorFileEvenIfThatRankEndedLater) {
  EXPECT_EQ(RootCause({End(0, ExitStatus(1), 1, false, 100.5), End(3, ExitStatus(1), 2, true, 100.1)}), 1u);
}

TEST(RootCause, IsTheLowestRankWhenNothingElseTells) {
  EXPECT_EQ(RootCause({End(2, ExitStatus(1), 1), End(1, ExitStatus(1), 1)}), 1u);
}

TEST(ErrorFile, IsReadInBothOfTorchsForms) {
  const auto full = ParseErrorFile(
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback …", "timestamp": "1700000000"}}})");
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->message, "ValueError: no");
  EXPECT_EQ(full->call_stack, "Traceback …");
  EXPECT_EQ(full->unix_seconds, 1700000000.0);
  const auto plain = ParseErrorFile(R"({"message": "it broke", "timestamp": 12.5})");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->message, "it broke");
  EXPECT_EQ(plain->unix_seconds, 12.5);
}

TEST(ErrorFile, IsNothingForOtherTexts) {
  for (const char* text : {"", "{", "[]", "3", R"({"other": 1})", R"({"message": 3})", "not json"}) {
    EXPECT_FALSE(ParseErrorFile(text).has_value()) << text;
  }
}

TEST(IdleGate, PassesOnceEveryCardWasSeenAtWork) {
  IdleGate gate({"gcu 0", "gcu 1"});
  gate.Observe({0, 12.0, std::nullopt});
  gate.Observe({1, 0.0, std::nullopt});
  EXPECT_FALSE(gate.Passed());
  gate.Observe({0, 0.0, std::nullopt});
  gate.Observe({1, 0.5, std::nullopt});
  EXPECT_TRUE(gate.Passed());
  EXPECT_TRUE(gate.Verdict({}).all_work);
}

TEST(IdleGate, NamesTheIdleCardAndTheRankThatWorksElsewhere) {
  IdleGate gate({"gcu 0", "gcu 1"});
  gate.Observe({0, 99.0, std::vector<int>{100, 101}});
  gate.Observe({1, 0.0, std::vector<int>{}});
  const GateVerdict verdict = gate.Verdict({{0, 0, {100}}, {1, 1, {101}}});
  EXPECT_FALSE(verdict.all_work);
  ASSERT_EQ(verdict.lines.size(), 1u);
  EXPECT_THAT(verdict.lines[0], HasSubstr("gcu 1 is IDLE"));
  EXPECT_THAT(verdict.lines[0], HasSubstr("rank 1 works on gcu 0 instead, as does rank 0."));
  EXPECT_THAT(verdict.lines[0], HasSubstr("LOCAL_RANK"));
}

TEST(IdleGate, TellsARankThatNeverOpenedItsCardFromOneThatGivesItNoWork) {
  IdleGate gate({"gcu 0", "gcu 1"});
  gate.Observe({0, 0.0, std::vector<int>{100}});
  gate.Observe({1, 0.0, std::vector<int>{}});
  const GateVerdict verdict = gate.Verdict({{0, 0, {100}}, {1, 1, {101}}});
  EXPECT_THAT(verdict.lines, ElementsAre(HasSubstr("gives it no work"), HasSubstr("has not opened it")));
}

TEST(IdleGate, DoesNotAccuseACardThatNobodyCanRead) {
  IdleGate gate({"gcu 0"});
  gate.Observe({0, std::nullopt, std::nullopt});
  const GateVerdict verdict = gate.Verdict({{0, 0, {100}}});
  EXPECT_TRUE(verdict.cannot_tell);
  EXPECT_THAT(verdict.lines, ElementsAre(HasSubstr("cannot tell whether gcu 0 works")));
}

TEST(IdleGate, AnIdleCardIsIdleEvenBesideOneThatNobodyCanRead) {
  IdleGate gate({"gcu 0", "gcu 1"});
  gate.Observe({0, std::nullopt, std::nullopt});
  gate.Observe({1, 0.0, std::nullopt});
  const GateVerdict verdict = gate.Verdict({{0, 0, {100}}, {1, 1, {101}}});
  EXPECT_FALSE(verdict.cannot_tell);
  EXPECT_THAT(verdict.lines, ElementsAre(HasSubstr("cannot tell whether gcu 0 works"), HasSubstr("gcu 1 is IDLE")));
}

TEST(OutOfMemory, IsToldFromAKillByTheCounters) {
  MemoryPressure before;
  before.cgroup_kills = 1;
  before.machine_kills = 7;
  MemoryPressure after = before;
  EXPECT_EQ(OutOfMemoryVerdict(before, after), std::nullopt);
  after.machine_kills = 8;
  EXPECT_THAT(OutOfMemoryVerdict(before, after).value_or(""), HasSubstr("most likely out of memory"));
  after.cgroup_kills = 2;
  after.limit_bytes = 64 << 20;
  after.peak_bytes = 63 << 20;
  EXPECT_THAT(OutOfMemoryVerdict(before, after).value_or(""), HasSubstr("limit of 64 MiB (peak 63 MiB)"));
  EXPECT_EQ(OutOfMemoryVerdict({}, after), std::nullopt) << "without a reading before nothing can be said";
}

}  // namespace
}  // namespace fulldeck::launcher
