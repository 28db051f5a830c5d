#include "diagnosis/hangs/stack_collection.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "temporary_folder.h"

namespace fulldeck::diagnosis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

enum class Answer { kWhole, kCut, kNone };

const int kSignal = SIGRTMAX - 4;
char answer_path[512];
Answer answer_kind;

// A short version of the agent.
void OnSignal(int, siginfo_t* info, void*) {
  if (answer_kind == Answer::kNone) return;
  char text[256];
  const int length = snprintf(
      text, sizeof text,
      "fulldeck stacks 1\nrequests: %d\nprocess: %d\nthread: %d main\npthread: 0x10\n#0 0x1 x+0x2 f+0x1\n%s",
      info->si_value.sival_int, getpid(), getpid(), answer_kind == Answer::kWhole ? "files:\nend of stacks\n" : "");
  const int file = open(answer_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (write(file, text, static_cast<std::size_t>(length)) != length) _exit(9);
  close(file);
}

// A process that waits for a request.
class FakeRank {
 public:
  FakeRank(int rank, const std::string& folder, Answer answer, bool handles = true, bool blocks = false) {
    target_.rank = rank;
    target_.file = folder + "/stacks-of-" + std::to_string(rank);
    target_.signal = kSignal;
    int ready[2];
    if (pipe(ready) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::strncpy(answer_path, target_.file.c_str(), sizeof answer_path - 1);
      answer_kind = answer;
      struct sigaction action {};
      action.sa_sigaction = OnSignal;
      action.sa_flags = SA_SIGINFO | SA_RESTART;
      if (handles) sigaction(kSignal, &action, nullptr);
      sigset_t all;
      sigfillset(&all);
      if (blocks) sigprocmask(SIG_SETMASK, &all, nullptr);
      if (write(ready[1], "+", 1) != 1) _exit(9);
      for (;;) pause();
    }
    char byte = 0;
    if (read(ready[0], &byte, 1) != 1) abort();
    close(ready[0]);
    close(ready[1]);
    target_.process = wire::IdentityOf(pid_).value_or(wire::ProcessIdentity());
  }
  ~FakeRank() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  FakeRank(const FakeRank&) = delete;
  FakeRank& operator=(const FakeRank&) = delete;

  const StackTarget& target() const { return target_; }
  pid_t pid() const { return pid_; }
  bool alive() const { return wire::IsAlive(target_.process); }
  void Stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  pid_t pid_ = -1;
  StackTarget target_;
};

class Collection : public ::testing::Test {
 protected:
  std::vector<RankStacks> Collect(std::vector<StackTarget> targets, base::Duration timeout = std::chrono::seconds(20)) {
    std::vector<RankStacks> result;
    int calls = 0;
    StackCollectionOptions options;
    options.timeout = timeout;
    const StackCollection collection(loop_, std::move(targets), options, [&](std::vector<RankStacks> ranks) {
      ++calls;
      result = std::move(ranks);
      loop_.Stop();
    });
    EXPECT_EQ(calls, 0);
    loop_.Run();
    EXPECT_EQ(calls, 1);
    return result;
  }

  base::EventLoop loop_;
  fulldeck::testing::TemporaryFolder folder_;
};

TEST_F(Collection, HasTheAnswersOfAllRanksInTheirOrder) {
  const FakeRank one(1, folder_.string(), Answer::kWhole);
  const FakeRank other(7, folder_.string(), Answer::kWhole);
  // Text that is already in the file does not answer the request.
  std::ofstream(one.target().file) << "fulldeck stacks 1\nrequests: 1\nprocess: 1\nend of stacks\n";
  const auto ranks = Collect({other.target(), one.target()});
  ASSERT_THAT(ranks, SizeIs(2));
  EXPECT_EQ(ranks[0].rank, 7);
  EXPECT_EQ(ranks[1].rank, 1);
  for (const RankStacks& rank : ranks) {
    ASSERT_TRUE(rank.complete());
    EXPECT_EQ(rank.why_none, "");
    EXPECT_EQ(rank.dump->process, rank.process.pid);
    EXPECT_EQ(rank.main_thread()->native[0].function, "f");
    EXPECT_FALSE(rank.was_stopped);
    EXPECT_NE(rank.Key(), "");
  }
  EXPECT_TRUE(one.alive() && other.alive());
}

TEST_F(Collection, ContinuesAStoppedRankForItsAnswerAndStopsItAgain) {
  const FakeRank rank(0, folder_.string(), Answer::kWhole);
  rank.Stop();
  const auto ranks = Collect({rank.target()});
  EXPECT_TRUE(ranks[0].complete() && ranks[0].was_stopped);
  EXPECT_THAT(ranks[0].Lines(), Contains(HasSubstr("is stopped again")));
  int status = 0;
  ASSERT_EQ(waitpid(rank.pid(), &status, WUNTRACED), rank.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
}

TEST_F(Collection, ThatIsDroppedStopsAgainWhatItContinued) {
  const FakeRank rank(0, folder_.string(), Answer::kNone);
  rank.Stop();
  {
    const StackCollection collection(loop_, {rank.target()}, {}, [](const auto&) { FAIL(); });
    EXPECT_TRUE(collection.WasContinuedByUs(rank.pid()));
    EXPECT_FALSE(collection.WasContinuedByUs(getpid()));
  }
  int status = 0;
  ASSERT_EQ(waitpid(rank.pid(), &status, WUNTRACED), rank.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
}

TEST_F(Collection, GivesUpInTimeAndShowsWhatTheKernelReports) {
  const FakeRank silent(0, folder_.string(), Answer::kNone);
  const FakeRank cut(1, folder_.string(), Answer::kCut);
  const auto ranks = Collect({silent.target(), cut.target()}, std::chrono::milliseconds(300));
  EXPECT_FALSE(ranks[0].dump.has_value());
  EXPECT_EQ(ranks[0].why_none, "it did not answer within 0.3 s");
  EXPECT_EQ(ranks[0].Key(), "");
  ASSERT_THAT(ranks[0].threads, Not(IsEmpty()));  // a sanitizer may add a thread of its own
  EXPECT_EQ(ranks[0].threads[0].state, 'S');
  EXPECT_THAT(ranks[0].Lines(), Contains(HasSubstr("sleeping (state S)")));
  ASSERT_TRUE(ranks[1].dump.has_value());
  EXPECT_FALSE(ranks[1].complete());
  EXPECT_THAT(ranks[1].Lines(), Contains("  not whole: it did not answer within 0.3 s"));
}

TEST_F(Collection, SignalsNobodyWhoWouldDieOfItOrIsAnother) {
  const FakeRank without(0, folder_.string(), Answer::kWhole, false);
  const FakeRank deaf(1, folder_.string(), Answer::kWhole, true, true);
  const FakeRank unrelated(2, folder_.string(), Answer::kWhole);
  const FakeRank unknown(3, folder_.string(), Answer::kWhole);
  const FakeRank agentless(4, folder_.string(), Answer::kWhole);
  StackTarget other = unrelated.target();
  ++other.process.start_ticks;
  StackTarget nameless = unknown.target();
  nameless.process.start_ticks = 0;
  StackTarget no_signal = agentless.target();
  no_signal.signal = 0;
  StackTarget wrong_signal = agentless.target();
  wrong_signal.signal = SIGTERM;
  StackTarget everybody = agentless.target();
  everybody.process.pid = -1;
  const auto ranks = Collect({without.target(), deaf.target(), other, nameless, no_signal, wrong_signal, everybody});
  EXPECT_THAT(ranks[0].why_none, HasSubstr("has become another one by exec"));
  EXPECT_THAT(ranks[1].why_none, HasSubstr("every thread of it blocks signal"));
  EXPECT_THAT(ranks[2].why_none, HasSubstr("has ended"));
  EXPECT_THAT(ranks[3].why_none, HasSubstr("has ended"));
  EXPECT_THAT(ranks[4].why_none, HasSubstr("the agent is not in it"));
  EXPECT_THAT(ranks[5].why_none, HasSubstr("the agent is not in it"));
  EXPECT_THAT(ranks[6].why_none, HasSubstr("has ended"));
  for (const RankStacks& rank : ranks) EXPECT_FALSE(rank.dump.has_value());
  for (const FakeRank* rank : {&without, &deaf, &unrelated, &unknown, &agentless}) EXPECT_TRUE(rank->alive());
}

TEST_F(Collection, LeavesARankToTheDebuggerThatHoldsIt) {
  const FakeRank rank(0, folder_.string(), Answer::kWhole);
  if (ptrace(PTRACE_SEIZE, rank.pid(), nullptr, nullptr) != 0) GTEST_SKIP() << "processes may not be traced here";
  const auto ranks = Collect({rank.target()});
  EXPECT_EQ(ranks[0].why_none,
            "a debugger or tracer holds it (process " + std::to_string(getpid()) + "): ask that for the stack");
}

TEST_F(Collection, OfNobodyIsEmpty) {
  EXPECT_THAT(Collect({}), SizeIs(0));
}

TEST(ProcessFacts, AreReadFromTheFilesOfTheKernel) {
  const fulldeck::testing::TemporaryFolder folder;
  folder.Write("proc/70/stat", "70 (python) D 1 70 70 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 900 0 0\n");
  folder.Write("proc/71/stat", "71 (a) b) S 70 70 70 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 901 0 0\n");
  folder.Write("proc/72/stat", "72 (x) Z 71 70 70 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 902 0 0\n");
  folder.Write("proc/71/cmdline", std::string("python\0load\x1b.py\0", 16));
  folder.Write("proc/72/comm", "gone\n");
  folder.Write("proc/70/task/70/status", "Name:\tpython\nState:\tD (disk sleep)\n");
  folder.Write("proc/70/task/70/wchan", "io_schedule");
  folder.Write("proc/70/task/70/syscall", "0 0x3 0x7ffd 0x10 0x0 0x0 0x0 0x7ffc 0x7f12\n");
  folder.Write("proc/70/task/70/stack", "[<0>] io_schedule+0x46/0x70\n[<0>] folio_wait_bit+0x1\n");
  folder.Write("proc/70/task/701/status", "Name:\tpin\nState:\tR (running)\n");
  folder.Write("proc/70/task/701/wchan", "0");
  folder.Write("proc/70/task/701/syscall", "running\n");
  const base::SystemRoot root(folder.string());
  const auto threads = ReadThreads(70, root);
  ASSERT_THAT(threads, SizeIs(2));
#ifdef __x86_64__
  EXPECT_EQ(threads[0].ToString(),
            "thread 70 python: held by the kernel, not to be interrupted (state D), in read, at io_schedule");
#endif
  EXPECT_THAT(threads[0].kernel_stack, Contains("[<0>] folio_wait_bit+0x1"));
  EXPECT_EQ(threads[1].ToString(), "thread 701 pin: running (state R)");
  const auto children = ReadChildren({70, 5}, root);
  ASSERT_THAT(children, SizeIs(2));
  ASSERT_THAT(children[0], SizeIs(2));
  EXPECT_EQ(children[0][0].command, "python load?.py");
  EXPECT_EQ(children[0][1].parent, 71);
  EXPECT_EQ(children[0][1].command, "gone");
  EXPECT_THAT(children[1], SizeIs(0));
}

TEST(SavedStacks, AreNumberedAndPrivate) {
  const fulldeck::testing::TemporaryFolder folder;
  RankStacks rank;
  rank.rank = 3;
  rank.why_none = "process 7 has ended";
  for (const char* name : {"/stacks-0.txt", "/stacks-1.txt"}) {
    const auto path = SaveStacks(folder.string(), {rank});
    ASSERT_TRUE(path.ok());
    EXPECT_EQ(*path, folder.string() + name);
    struct stat facts {};
    ASSERT_EQ(stat(path->c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600U);
  }
  EXPECT_THAT(SaveStacks(folder.string() + "/nowhere", {rank}).error().message, HasSubstr("cannot write"));
}

TEST(RankStacksMainPlace, IsTheProgramsOwnFrameBeforeThoseOfLibraries) {
  RankStacks rank;
  EXPECT_EQ(rank.MainPlace(), "");
  rank.process = {10, 1};
  rank.dump.emplace();
  ThreadStack main;
  main.thread = 10;
  main.native = {{1, "libc.so.6", 5, "recv"}, {2, "trainer", 0x60, ""}, {3, "trainer", 0x70, "main"}};
  rank.dump->threads = {main};
  EXPECT_EQ(rank.MainPlace(), "trainer+0x60");
  main.python = {{"/usr/lib/python3.11/ssl.py", 1, "read"},
                 {"/opt/venv/lib/python3.11/site-packages/boto3/s3.py", 2, "put"},
                 {"/home/me/work/train.py", 9, "upload"},
                 {"/home/me/work/train.py", 80, "<module>"}};
  rank.dump->threads = {main};
  EXPECT_EQ(rank.MainPlace(), "work/train.py:9 in upload");
  main.python.resize(2);
  rank.dump->threads = {main};
  EXPECT_EQ(rank.MainPlace(), "python3.11/ssl.py:1 in read");
}

TEST(RankStacksLines, ShowThreadsInOnePlaceOnceAndFoldTheInterpreter) {
  RankStacks rank;
  rank.rank = 2;
  rank.process = {10, 1};
  rank.dump.emplace();
  rank.dump->whole = true;
  ThreadStack waits;
  waits.answered = true;
  waits.native = {{1, "libc.so.6", 5, "read"}, {2, "libx.so", 6, "_ZN1a1bEi"}};
  for (int thread = 20; thread < 26; ++thread) {
    waits.thread = thread;
    waits.name = "pool";
    rank.dump->threads.push_back(waits);
  }
  ThreadStack main;
  main.thread = 10;
  main.name = "python";
  main.answered = true;
  main.python = {{"/data/job/train.py", 9, "step"}};
  main.native = {{1, "libc.so.6", 5, "poll"},
                 {2, "libpython3.11.so", 6, ""},
                 {3, "libpython3.11.so", 7, "x"},
                 {4, "python", 8, "_start"}};
  rank.dump->threads.push_back(main);
  EXPECT_THAT(rank.Lines(),
              ::testing::ElementsAre("rank 2 (pid 10): 7 threads, told in 0 ms",
                                     "  thread 10 python (main):", "    Python:", "      job/train.py:9 in step",
                                     "    native:", "      #0 poll (libc.so.6)", "      … 3 frames of the interpreter",
                                     "  threads 20 pool, 21 pool, 22 pool, 23 pool … (6 in the same place):",
                                     "    native:", "      #0 read (libc.so.6)", "      #1 a::b (libx.so)"));
  EXPECT_THAT(rank.Lines(1), Contains("      … 1 more frame"));
  EXPECT_THAT(rank.AllLines(), Contains("      /data/job/train.py:9 in step"));
  EXPECT_THAT(rank.AllLines(), Contains("      #1 libpython3.11.so+0x6"));
}

}  // namespace
}  // namespace fulldeck::diagnosis
