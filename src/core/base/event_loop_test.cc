#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "base/subprocess.h"

namespace fulldeck::base {
namespace {

using namespace std::chrono_literals;

// Runs the loop until the condition holds. The timeout is longer than any healthy machine needs.
template <typename Condition>
bool RunUntil(EventLoop& loop, Condition condition, Duration timeout = 20s) {
  const TimePoint deadline = SteadyClock::Instance().Now() + timeout;
  while (!condition()) {
    const Duration left = deadline - SteadyClock::Instance().Now();
    if (left <= 0s) return false;
    loop.RunOnce(left);
  }
  return true;
}

pid_t StartShell(const std::string& script) {
  SpawnOptions options;
  options.arguments = {"/bin/sh", "-c", script};
  const auto pid = Spawn(options);
  EXPECT_TRUE(pid.ok());
  return pid.ok() ? *pid : -1;
}

TEST(EventLoop, CallsTheHandlerOfAPipeThatCanBeRead) {
  EventLoop loop;
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  char got = 0;
  ASSERT_TRUE(loop.WhenReadable(pipe->read_end.get(), [&] { EXPECT_EQ(read(pipe->read_end.get(), &got, 1), 1); }).ok());
  EXPECT_FALSE(loop.RunOnce(0ms)) << "nothing was written yet";
  ASSERT_EQ(write(pipe->write_end.get(), "x", 1), 1);
  EXPECT_TRUE(RunUntil(loop, [&] { return got == 'x'; }));
}

TEST(EventLoop, ReportsThatAPipeCanBeWritten) {
  EventLoop loop;
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  bool writable = false;
  ASSERT_TRUE(loop.WhenWritable(pipe->write_end.get(), [&] { writable = true; }).ok());
  EXPECT_TRUE(RunUntil(loop, [&] { return writable; }));
}

TEST(EventLoop, RefusesARegularFile) {
  EventLoop loop;
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(loop.WhenReadable(fileno(file), [] {}).ok());
  std::fclose(file);
}

TEST(EventLoop, FiresTimersInTheOrderOfTheirTimesByTheClockItWasGiven) {
  ManualClock clock;
  EventLoop loop(clock);
  std::string order;
  loop.After(2s, [&] { order += "b"; });
  loop.After(1s, [&] { order += "a"; });
  loop.After(3s, [&] { order += "c"; });
  EXPECT_FALSE(loop.RunOnce(0ms));
  clock.Advance(2s);
  EXPECT_TRUE(loop.RunOnce(0ms));
  EXPECT_EQ(order, "ab");
  clock.Advance(1s);
  loop.RunOnce(0ms);
  EXPECT_EQ(order, "abc");
}

TEST(EventLoop, WakesUpForATimerOfTheRealClock) {
  EventLoop loop;
  bool fired = false;
  loop.After(5ms, [&] { fired = true; });
  EXPECT_TRUE(RunUntil(loop, [&] { return fired; }));
}

TEST(EventLoop, SeesToDescriptorsBesideATimerThatIsAlwaysDue) {
  const ManualClock clock;
  EventLoop loop(clock);
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  bool received = false;
  ASSERT_TRUE(loop.WhenReadable(pipe->read_end.get(), [&] { received = true; }).ok());
  int rounds = 0;
  std::function<void()> again = [&] {
    ++rounds;
    loop.After(Duration(0), again);
  };
  again();
  ASSERT_EQ(write(pipe->write_end.get(), "x", 1), 1);
  for (int i = 0; i < 5 && !received; ++i) loop.RunOnce(Duration(0));
  EXPECT_TRUE(received);
  EXPECT_LE(rounds, 6) << "once a round";
}

TEST(EventLoop, ForgetsARemovedTimer) {
  ManualClock clock;
  EventLoop loop(clock);
  const EventLoop::Id id = loop.After(1s, [] { FAIL() << "it was removed"; });
  loop.Remove(id);
  clock.Advance(2s);
  EXPECT_FALSE(loop.RunOnce(0ms));
}

TEST(EventLoop, LetsAHandlerRemoveItselfAndItsNeighborInTheSameRound) {
  EventLoop loop;
  auto one = MakePipe();
  auto two = MakePipe();
  ASSERT_TRUE(one.ok() && two.ok());
  EventLoop::Id first = 0;
  EventLoop::Id second = 0;
  int calls = 0;
  const auto remove_both = [&] {
    ++calls;
    loop.Remove(first);
    loop.Remove(second);
  };
  first = *loop.WhenReadable(one->read_end.get(), remove_both);
  second = *loop.WhenReadable(two->read_end.get(), remove_both);
  ASSERT_EQ(write(one->write_end.get(), "x", 1), 1);
  ASSERT_EQ(write(two->write_end.get(), "x", 1), 1);
  loop.RunOnce(1s);
  loop.RunOnce(0ms);
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, HandsOverSignalsAndRestoresTheMaskAtTheEnd) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    EventLoop loop;
    int seen = 0;
    ASSERT_TRUE(loop.OnSignals({SIGUSR1, SIGUSR2}, [&](int number) { seen = number; }).ok());
    kill(getpid(), SIGUSR2);
    EXPECT_TRUE(RunUntil(loop, [&] { return seen == SIGUSR2; }));
  }
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
}

class EventLoopChildren : public testing::TestWithParam<EventLoop::ChildEvents> {};

TEST_P(EventLoopChildren, ReportTheirExitCodeAndAreReaped) {
  EventLoop loop(SteadyClock::Instance(), GetParam());
  const pid_t pid = StartShell("exit 7");
  std::optional<int> status;
  ASSERT_TRUE(loop.WhenExited(pid, [&](std::optional<int> s) { status = s; }).ok());
  ASSERT_TRUE(RunUntil(loop, [&] { return status.has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*status), 7);
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1) << "the child should have been reaped";
}

TEST_P(EventLoopChildren, ThatEndedBeforeTheyWereWatchedAreStillReported) {
  EventLoop loop(SteadyClock::Instance(), GetParam());
  const pid_t pid = StartShell("exit 3");
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  std::optional<int> status;
  ASSERT_TRUE(loop.WhenExited(pid, [&](std::optional<int> s) { status = s; }).ok());
  ASSERT_TRUE(RunUntil(loop, [&] { return status.has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*status), 3);
}

// A child may exit between any two instructions of the call that starts to watch it.
TEST_P(EventLoopChildren, ThatEndWhileTheyBeginToBeWatchedAreStillReported) {
  for (int i = 0; i < 1000; ++i) {
    EventLoop loop(SteadyClock::Instance(), GetParam());
    const TimePoint ends_at = SteadyClock::Instance().Now() + std::chrono::microseconds(50 + i % 200);
    const pid_t pid = fork();
    if (pid == 0) {
      while (SteadyClock::Instance().Now() < ends_at) {
      }
      _exit(3);
    }
    ASSERT_GT(pid, 0);
    while (SteadyClock::Instance().Now() < ends_at) {
    }
    std::optional<int> status;
    ASSERT_TRUE(loop.WhenExited(pid, [&](std::optional<int> s) { status = s; }).ok());
    ASSERT_TRUE(RunUntil(loop, [&] { return status.has_value(); })) << "child " << i;
    EXPECT_EQ(WEXITSTATUS(*status), 3);
  }
}

TEST_P(EventLoopChildren, AreDistinguishedWhenSeveralEndAtOnce) {
  EventLoop loop(SteadyClock::Instance(), GetParam());
  std::map<int, int> codes;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = StartShell("exit " + std::to_string(i));
    ASSERT_TRUE(loop.WhenExited(pid, [&codes, i](std::optional<int> s) { codes[i] = WEXITSTATUS(s.value()); }).ok());
  }
  ASSERT_TRUE(RunUntil(loop, [&] { return codes.size() == 8; }));
  for (const auto& [number, code] : codes) EXPECT_EQ(number, code);
}

TEST_P(EventLoopChildren, KilledBySignalSaySo) {
  EventLoop loop(SteadyClock::Instance(), GetParam());
  const pid_t pid = StartShell("kill -9 $$");
  std::optional<int> status;
  ASSERT_TRUE(loop.WhenExited(pid, [&](std::optional<int> s) { status = s; }).ok());
  ASSERT_TRUE(RunUntil(loop, [&] { return status.has_value(); }));
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL);
}

TEST_P(EventLoopChildren, OfNobodyAreAnError) {
  EventLoop loop(SteadyClock::Instance(), GetParam());
  EXPECT_FALSE(loop.WhenExited(1 << 29, [](std::optional<int>) {}).ok());
}

INSTANTIATE_TEST_SUITE_P(BothWays, EventLoopChildren,
                         testing::Values(EventLoop::ChildEvents::kPidfdIfPossible, EventLoop::ChildEvents::kSigchld),
                         [](const auto& param_info) {
                           return param_info.param == EventLoop::ChildEvents::kSigchld ? "Sigchld" : "Pidfd";
                         });

}  // namespace
}  // namespace fulldeck::base
