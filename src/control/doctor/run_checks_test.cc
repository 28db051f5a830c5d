#include "doctor/run_checks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "base/subprocess.h"
#include "doctor/finding.h"
#include "doctor/finding_json.h"
#include "doctor/machine/scene_for_test.h"
#include "wire/process_identity.h"

namespace fulldeck::doctor {
namespace {

std::vector<Finding> SayOk(const Subject& subject) {
  return {Ok(Say("{} ranks", "{} 个 rank", subject.ranks), {{"ranks", std::to_string(subject.ranks)}})};
}
std::vector<Finding> SayNothing(const Subject&) {
  return {};
}
std::vector<Finding> Crash(const Subject&) {
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  return {};
}
std::vector<Finding> LeaveWithoutAWord(const Subject&) {
  _exit(0);
}
std::vector<Finding> SayMuch(const Subject&) {
  return std::vector<Finding>(1000, Warn(Say("{}", "{}", std::string(500, 'x')), Say("do", "做"), "H1"));
}
// Starts a program, notes its pid below the root, and waits for ever.
std::vector<Finding> Hang(const Subject& subject) {
  base::SpawnOptions options;
  options.arguments = {"/bin/sleep", "600"};
  options.parent_death_signal = SIGKILL;
  const auto pid = base::Spawn(options);
  if (pid) std::ofstream(subject.root.Path("/child")) << *pid;
  for (;;) pause();
}

Check Named(std::string_view id, std::vector<Finding> (*run)(const Subject&)) {
  Check check;
  check.id = id;
  check.run = run;
  return check;
}

TEST(RunChecks, AnswersInTheOrderOfTheChecksWhateverTheyDo) {
  Scene scene;
  scene.subject.kernel = &Kernel::OfThisMachine();
  const std::vector<Check> checks = {Named("crash", Crash), Named("good", SayOk), Named("leave", LeaveWithoutAWord),
                                     Named("much", SayMuch), Named("nothing", SayNothing)};
  const auto reports = RunChecks(checks, scene.subject, 3);
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
  Scene scene;
  Check hangs = Named("hangs", Hang);
  hangs.limit = std::chrono::milliseconds(700);
  const auto begin = base::SteadyClock::Instance().Now();
  const std::vector<Check> checks = {hangs, Named("good", SayOk)};
  const auto reports = RunChecks(checks, scene.subject);
  EXPECT_LT(base::SteadyClock::Instance().Now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(Worst(reports[0].findings), Verdict::kCannotTell);
  EXPECT_NE(reports[0].findings.at(0).evidence.english.find("no answer after"), std::string::npos);
  EXPECT_EQ(Worst(reports[1].findings), Verdict::kOk);
  int child = 0;
  std::ifstream(scene.tree.path() / "child") >> child;
  ASSERT_GT(child, 1);
  // Who inherits it may take its time to reap it.
  const wire::ProcessIdentity started{child, 0};
  for (int i = 0; i < 2000 && wire::IsAlive(started); ++i) usleep(5000);
  EXPECT_FALSE(wire::IsAlive(started)) << "what the check had started lives on";
}

std::vector<Finding> CountCalls(const Subject&) {
  static int calls = 0;
  return {Ok(Say("call {}", "第 {} 次", ++calls))};
}

TEST(RunChecks, AFamilySharesAProcessAndKeepsWhatWasAnsweredBeforeOneOfItDied) {
  Scene scene;
  std::vector<Check> checks = {Named("first", CountCalls), Named("alone", CountCalls), Named("second", CountCalls),
                               Named("crash", Crash), Named("last", CountCalls)};
  for (const std::size_t member : {0, 2, 3, 4}) checks[member].family = "counting";
  const auto reports = RunChecks(checks, scene.subject);
  ASSERT_EQ(reports.size(), 5U);
  EXPECT_EQ(reports[0].findings.at(0).evidence.english, "call 1");
  EXPECT_EQ(reports[1].findings.at(0).evidence.english, "call 1");
  EXPECT_EQ(reports[2].findings.at(0).evidence.english, "call 2");
  for (const std::size_t unanswered : {3, 4}) EXPECT_EQ(Worst(reports[unanswered].findings), Verdict::kCannotTell);
}

TEST(RunChecks, LeavesDeepChecksOutUnlessAsked) {
  Scene scene;
  Check deep = Named("deep", SayOk);
  deep.only_deep = true;
  const std::vector<Check> checks = {deep, Named("good", SayOk)};
  EXPECT_EQ(RunChecks(checks, scene.subject).size(), 1U);
  scene.subject.deep = true;
  EXPECT_EQ(RunChecks(checks, scene.subject).size(), 2U);
}

TEST(Findings, ThatAreCutShortAreAnError) {
  const std::string whole = FormatFindings({Fail(Say("a", "甲"), Say("b", "乙"), "H1", {{"n", "1"}})});
  const auto read = ParseFindings(whole);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->at(0).cure.chinese, "乙");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseFindings(std::string_view(whole).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(ParseFindings(R"([{"verdict":9,"evidence":["",""],"cure":["",""],"row":"","figures":[]}])").ok());
  EXPECT_FALSE(ParseFindings(R"([{"verdict":0}])").ok());
}

}  // namespace
}  // namespace fulldeck::doctor
