#include "doctor/run_checks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "base/subprocess.h"
#include "doctor/finding.h"
#include "doctor/finding_json.h"
#include "doctor/machine/fake_machine_for_test.h"
#include "wire/process_identity.h"

namespace fulldeck::doctor {
namespace {

std::vector<Finding> ReportOk(const MachineUnderTest& machine) {
  return {Ok(Bilingual("{} ranks", "{} 个 rank", machine.ranks), {{"ranks", std::to_string(machine.ranks)}})};
}
std::vector<Finding> ReportNothing(const MachineUnderTest&) {
  return {};
}
std::vector<Finding> Crash(const MachineUnderTest&) {
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  return {};
}
std::vector<Finding> ExitSilently(const MachineUnderTest&) {
  _exit(0);
}
std::vector<Finding> ReportMuch(const MachineUnderTest&) {
  return std::vector<Finding>(1000, Warn(Bilingual("{}", "{}", std::string(500, 'x')), Bilingual("do", "做"), "H1"));
}
// Starts a program, records its pid below the root, and waits forever.
std::vector<Finding> Hang(const MachineUnderTest& machine) {
  base::SpawnOptions options;
  options.arguments = {"/bin/sleep", "600"};
  options.parent_death_signal = SIGKILL;
  const auto pid = base::Spawn(options);
  if (pid) std::ofstream(machine.root.Path("/child")) << *pid;
  for (;;) pause();
}

Check Named(std::string_view id, std::vector<Finding> (*run)(const MachineUnderTest&)) {
  Check check;
  check.id = id;
  check.run = run;
  return check;
}

TEST(RunChecks, AnswersInTheOrderOfTheChecksWhateverTheyDo) {
  FakeMachine fake;
  fake.machine.kernel = &SystemCalls::OfThisMachine();
  const std::vector<Check> checks = {Named("crash", Crash), Named("good", ReportOk), Named("leave", ExitSilently),
                                     Named("much", ReportMuch), Named("nothing", ReportNothing)};
  const auto reports = RunChecks(checks, fake.machine, 3);
  ASSERT_EQ(reports.size(), checks.size());
  EXPECT_EQ(reports[0].check->id, "crash");
  EXPECT_EQ(Worst(reports[0].findings), Verdict::kCannotTell);
  EXPECT_NE(reports[0].findings.at(0).evidence.english.find("signal 11"), std::string::npos)
      << reports[0].findings[0].evidence.english;
  ASSERT_EQ(reports[1].findings.size(), 1U);
  EXPECT_EQ(reports[1].findings[0].verdict, Verdict::kOk);
  EXPECT_EQ(reports[1].findings[0].evidence.english, "8 ranks");
  EXPECT_EQ(reports[1].findings[0].figures.at(0).second, "8");
  EXPECT_EQ(Worst(reports[2].findings), Verdict::kCannotTell);
  EXPECT_EQ(reports[3].findings.size(), 1000U);
  EXPECT_EQ(reports[3].findings.back().row, "H1");
  EXPECT_TRUE(reports[4].findings.empty());
}

TEST(RunChecks, EndsACheckThatHangsWithWhatItStarted) {
  FakeMachine fake;
  Check hangs = Named("hangs", Hang);
  hangs.limit = std::chrono::milliseconds(700);
  const auto begin = base::SteadyClock::Instance().Now();
  const std::vector<Check> checks = {hangs, Named("good", ReportOk)};
  const auto reports = RunChecks(checks, fake.machine);
  EXPECT_LT(base::SteadyClock::Instance().Now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(Worst(reports[0].findings), Verdict::kCannotTell);
  EXPECT_NE(reports[0].findings.at(0).evidence.english.find("no answer after"), std::string::npos);
  EXPECT_EQ(Worst(reports[1].findings), Verdict::kOk);
  int child = 0;
  std::ifstream(fake.tree.path() / "child") >> child;
  ASSERT_GT(child, 1);
  // Its new parent may take a while to reap it.
  const wire::ProcessIdentity started{child, 0};
  for (int i = 0; i < 2000 && wire::IsAlive(started); ++i) usleep(5000);
  EXPECT_FALSE(wire::IsAlive(started)) << "what the check had started lives on";
}

std::vector<Finding> CountCalls(const MachineUnderTest&) {
  static int calls = 0;
  return {Ok(Bilingual("call {}", "第 {} 次", ++calls))};
}

TEST(RunChecks, AFamilySharesAProcessAndKeepsWhatWasAnsweredBeforeOneOfItDied) {
  FakeMachine fake;
  std::vector<Check> checks = {Named("first", CountCalls), Named("alone", CountCalls), Named("second", CountCalls),
                               Named("crash", Crash), Named("last", CountCalls)};
  for (const std::size_t member : {0, 2, 3, 4}) checks[member].family = "counting";
  const auto reports = RunChecks(checks, fake.machine);
  ASSERT_EQ(reports.size(), 5U);
  EXPECT_EQ(reports[0].findings.at(0).evidence.english, "call 1");
  EXPECT_EQ(reports[1].findings.at(0).evidence.english, "call 1");
  EXPECT_EQ(reports[2].findings.at(0).evidence.english, "call 2");
  for (const std::size_t unanswered : {3, 4}) EXPECT_EQ(Worst(reports[unanswered].findings), Verdict::kCannotTell);
}

TEST(RunChecks, LeavesDeepChecksOutUnlessRequested) {
  FakeMachine fake;
  Check deep = Named("deep", ReportOk);
  deep.only_deep = true;
  const std::vector<Check> checks = {deep, Named("good", ReportOk)};
  EXPECT_EQ(RunChecks(checks, fake.machine).size(), 1U);
  fake.machine.deep = true;
  EXPECT_EQ(RunChecks(checks, fake.machine).size(), 2U);
}

TEST(Findings, ThatAreCutShortAreAnError) {
  const std::string whole = FormatFindings({Fail(Bilingual("a", "甲"), Bilingual("b", "乙"), "H1", {{"n", "1"}})});
  const auto read = ParseFindings(whole);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->at(0).fix.chinese, "乙");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseFindings(std::string_view(whole).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(ParseFindings(R"([{"verdict":9,"evidence":["",""],"cure":["",""],"row":"","figures":[]}])").ok());
  EXPECT_FALSE(ParseFindings(R"([{"verdict":0}])").ok());
}

}  // namespace
}  // namespace fulldeck::doctor
