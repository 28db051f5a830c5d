#include "bench/rank_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace fulldeck::bench {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Ranks that are Python scripts of a few lines; R is the rank.
constexpr char kPrelude[] =
    "import json, os, socket, sys, time\n"
    "S, R = sys.argv[1], int(sys.argv[2])\n"
    "c = socket.socket(socket.AF_UNIX); c.connect(S); f = c.makefile('rw')\n"
    "def say(text): f.write(text + '\\n'); f.flush()\n"
    "def greet(): say(json.dumps({'rank': R, 'about': 'a script'}))\n";

class RankSetTest : public ::testing::Test {
 protected:
  RankSet::Started Start(const std::string& script, int ranks, seconds timeout = seconds(60)) {
    RankCommand command{"script", ranks, {}};
    for (int rank = 0; rank < ranks; ++rank) {
      base::SpawnOptions options;
      options.arguments = {
          "/usr/bin/env",      "python3", "-c", kPrelude + script, RankSet::SocketPath(folder_.string(), command),
          std::to_string(rank)};
      command.processes.push_back(options);
    }
    return RankSet::Start(loop_, interrupted_, std::move(command), folder_.string(), timeout);
  }

  static bool Never(const std::string&) { return false; }

  base::EventLoop loop_;
  bool interrupted_ = false;
  fulldeck::testing::TemporaryFolder folder_;
};

TEST_F(RankSetTest, AllGetTheRequestAndAnswersComeByRank) {
  const auto started = Start("greet()\nfor line in f: say('%d heard %s' % (R, line.strip()))\n", 3);
  ASSERT_TRUE(started.set) << started.failed.value_or("");
  EXPECT_EQ(started.set->about(), "a script");
  for (const char* word : {"one", "two"}) {
    const auto answers = started.set->Request(word, seconds(60), Never);
    ASSERT_TRUE(answers) << answers.error().message;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ((*answers)[rank], std::to_string(rank) + " heard " + word);
    }
  }
}

TEST_F(RankSetTest, ALibraryThatIsNotThereIsAbsentWithItsOwnMessage) {
  const auto started = Start("say(json.dumps({'rank': R, 'absent': 'no torch'}))\n", 2);
  EXPECT_FALSE(started.set);
  EXPECT_EQ(started.absent, "no torch");
}

TEST_F(RankSetTest, AProcessThatEndsIsReportedWithItsLastLines) {
  const auto started = Start("greet() if R == 0 else sys.exit('the reason\\x1b[2J')\nf.readline()\n", 2);
  EXPECT_FALSE(started.set);
  ASSERT_TRUE(started.failed);
  EXPECT_THAT(*started.failed, HasSubstr("ended with code 1"));
  EXPECT_THAT(*started.failed, HasSubstr("| the reason?[2J"));
}

TEST_F(RankSetTest, ARankThatIsKilledEndsTheQuestion) {
  const auto started = Start("greet()\nfor line in f:\n  if R == 1: os.kill(os.getpid(), 9)\n  time.sleep(100)\n", 2);
  ASSERT_TRUE(started.set);
  const auto answers = started.set->Request("go", seconds(60), Never);
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message, HasSubstr("ended by signal 9"));
  EXPECT_FALSE(started.set->Request("again", seconds(60), Never)) << "it is of no more use";
}

TEST_F(RankSetTest, ASilentRankEndsInATimeOut) {
  const auto started = Start("greet()\nfor line in f:\n  if R == 0: say('here')\n  else: time.sleep(100)\n", 2);
  ASSERT_TRUE(started.set);
  const auto answers = started.set->Request("go", seconds(1), Never);
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message, HasSubstr("1 of 2 ranks gave no answer in 1 s"));
}

TEST_F(RankSetTest, AFinalAnswerIsNotKeptWaitingForTheOthers) {
  const auto started = Start("greet()\nfor line in f:\n  if R == 1: say('wrong')\n  else: time.sleep(100)\n", 2);
  ASSERT_TRUE(started.set);
  const auto answers =
      started.set->Request("go", seconds(60), [](const std::string& answer) { return answer == "wrong"; });
  ASSERT_TRUE(answers);
  EXPECT_EQ((*answers)[0], std::nullopt);
  EXPECT_EQ((*answers)[1], "wrong");
}

TEST_F(RankSetTest, GreetingsThatCannotBeAreFailures) {
  for (const char* script : {"say('{}')\nf.readline()\n", "say('7')\nf.readline()\n", "R = 0\ngreet()\nf.readline()\n",
                             "R += 5\ngreet()\nf.readline()\n"}) {
    const auto started = Start(script, 2);
    EXPECT_FALSE(started.set) << script;
    EXPECT_TRUE(started.failed) << script;
  }
}

TEST_F(RankSetTest, AnInterruptEndsTheWait) {
  const auto started = Start("greet()\nfor line in f: time.sleep(100)\n", 2);
  ASSERT_TRUE(started.set);
  loop_.After(std::chrono::milliseconds(50), [this] { interrupted_ = true; });
  const auto answers = started.set->Request("go", seconds(60), Never);
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message, HasSubstr("interrupted"));
}

}  // namespace
}  // namespace fulldeck::bench
